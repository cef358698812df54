package approval

// ParseReply is parseReply, for its fuzz test.
var ParseReply = parseReply
