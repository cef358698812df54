package run

import "github.com/rein-sh/rein/execd"

// Room is how many bytes a file that has some may have in the output directory.
func (o *OutputInfo) Room(has int64, mine bool) int64 { return o.room(syncedFile{Bytes: has}, mine) }

// Listed counts files of one level of a workspace, directory by directory.
func Listed(dirs ...[]execd.FileInfo) error {
	var l listed
	for _, files := range dirs {
		if err := l.add(files); err != nil {
			return err
		}
	}
	return nil
}
