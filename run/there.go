package run

import (
	"context"
	"fmt"

	"github.com/rein-sh/rein/execd"
)

// standing is what the working directory held before anything was copied in:
// files of an image, or of a mount. It is no part of the work as long as it is
// as it was.
type standing map[string]execd.FileInfo

// has reports whether something was there as it is now.
func (s standing) has(rel string, now execd.FileInfo) bool {
	was, ok := s[rel]
	return ok && was.Type == now.Type && (now.Type == "directory" || was.Mode == now.Mode && was.Size == now.Size && was.Target == now.Target && was.SHA256 == now.SHA256)
}

// lookAround notes what the working directory holds. What the ignore files leave
// out is noted and not entered, as when the patch is made.
func (r *runner) lookAround(ctx context.Context) error {
	there := standing{}
	err := levels(ctx, r.box, r.box.Info().Cwd, func(rel string, info execd.FileInfo) (bool, error) {
		if there[rel] = info; len(there) > maxListed {
			return false, fmt.Errorf("the working directory of the image has more than %d files", maxListed)
		}
		ignored, secret := r.leftOut(rel, info)
		return !ignored && !secret, nil
	})
	r.there = there
	return err
}
