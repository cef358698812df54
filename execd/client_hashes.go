package execd

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
)

// ListHashed is List with FileInfo.SHA256 of every regular file. A daemon that
// is not ours leaves the hashes out.
func (c *Client) ListHashed(ctx context.Context, root, dir string, depth int) ([]FileInfo, error) {
	var l []FileInfo
	q := url.Values{"path": {dir}, "depth": {strconv.Itoa(depth)}, "hash": {"1"}}
	err := c.call(ctx, http.MethodGet, "/directories/list", rooted(root, q), nil, &l)
	return l, err
}
