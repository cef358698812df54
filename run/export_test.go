package run

// Room is how many bytes a file that has some may have in the output directory.
func (o *OutputInfo) Room(has int64, mine bool) int64 { return o.room(syncedFile{Bytes: has}, mine) }
