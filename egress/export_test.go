package egress

// What tests from outside need to say things that no library says.
var (
	InRecords  = inRecords
	BuiltHello = builtHello
	Named      = named
	HelloRetry = append([]byte{recordHandshake, 3, 3, 0, 80, helloServer, 0, 0, 76, 3, 3}, append(retryRandom, make([]byte, 42)...)...)
)

// MaxProxyConns is how many connections to the proxy may be open.
const MaxProxyConns = maxProxyConns

// Extension is one of a ClientHello.
func Extension(kind uint16, data []byte) extension { return extension{kind, data} }
