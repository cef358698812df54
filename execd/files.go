package execd

// RootQuery is the query parameter that confines a file operation: an absolute
// directory; every path of the request must be beneath it, and no link leads
// out of it, also not one that changes meanwhile. Relative paths start there.
// Without it paths are the system's own. Uploads carry it in their metadata.
//
// A request with a root takes its paths as they are and gives lines with their
// ends. One without expands "~" and $VAR in paths and trims the ends of lines,
// as OpenSandbox does; "/" as the root confines nothing.
//
// Whether confined or not, only regular files are read and written: a FIFO,
// device or socket is refused without being waited for.
const RootQuery = "root"

// HashHeader carries the SHA-256 (hexadecimal) of a downloaded file when the
// request asked for it with the query sha256=true.
const HashHeader = "X-Rein-Sha256"

// HashAbsent is the UploadOptions.ExpectedHash of a file that must not exist.
const HashAbsent = "absent"

// UploadMetadata is the "metadata" part of an upload. The file is written
// beside its place and then renamed over it, so that nobody sees half of it
// and a failed upload changes nothing. Missing parents are created.
type UploadMetadata struct {
	Path string `json:"path"`
	// Mode has octal digits read as decimal (644). Nil: an existing file keeps
	// its mode, a new one gets 755 as with OpenSandbox; 0 is the same with 644.
	Mode *int `json:"mode,omitempty"`
	// Owner and Group are names or numbers; empty: the sandbox's user.
	Owner string         `json:"owner,omitempty"`
	Group string         `json:"group,omitempty"`
	Rein  *UploadOptions `json:"rein,omitempty"`
}

// UploadOptions are rein's additions to an upload.
type UploadOptions struct {
	// Root confines the write, see RootQuery.
	Root string `json:"root,omitempty"`
	// ExpectedHash is the SHA-256 of the file that is replaced, or HashAbsent;
	// any other file is left alone with CodeHashMismatch. Empty: no condition.
	ExpectedHash string `json:"expected_hash,omitempty"`
	// SHA256 is what the uploaded bytes must have; empty: not checked.
	SHA256 string `json:"sha256,omitempty"`
}

// Uploaded describes a file as it was written. It is the answer to an upload
// whose metadata had rein's options; one element a file.
type Uploaded struct {
	Path   string `json:"path"`
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256"`
	Mode   int    `json:"mode"`
}

// Permission is the value of POST /files/permissions and of POST /directories.
type Permission struct {
	Mode  int    `json:"mode,omitempty"` // octal digits read as decimal; 0 leaves it
	Owner string `json:"owner,omitempty"`
	Group string `json:"group,omitempty"`
}

// Move is one element of POST /files/mv. The destination must not exist; its
// parents are created.
type Move struct {
	Src  string `json:"src"`
	Dest string `json:"dest"`
}

// Replace is the value of POST /files/replace: every occurrence of Old.
type Replace struct {
	Old string `json:"old"`
	New string `json:"new"`
}

// Replaced is the value of its answer when it was asked for with verbose=true.
type Replaced struct {
	Count int `json:"replacedCount"`
}
