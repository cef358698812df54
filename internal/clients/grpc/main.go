// Command grpc is a server of gRPC that wants a key, and its client: of gRPC's own
// library, which is no dependency of rein's. It is a module of its own for that.
package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

const (
	greetMethod = "/rein.Lab/Greet"
	talkMethod  = "/rein.Lab/Talk"
	// trailer is a field that the server sends last.
	trailer = "rein-lab-turns"
	turns   = 5
)

func main() {
	var err error
	switch {
	case len(os.Args) == 6 && os.Args[1] == "serve":
		err = serve(os.Args[2], os.Args[3], os.Args[4], os.Args[5])
	case len(os.Args) == 3 && os.Args[1] == "call":
		err = call(os.Args[2], os.Getenv("KEY"))
	default:
		err = errors.New("usage: grpc serve ADDRESS CERTIFICATE KEY GREETING, with the token on standard input | KEY=TOKEN grpc call HOST")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// server greets whoever has the token.
type server struct{ token, greeting string }

func (s *server) admit(ctx context.Context) error {
	fields, _ := metadata.FromIncomingContext(ctx)
	if got := fields.Get("authorization"); len(got) != 1 || got[0] != "Bearer "+s.token {
		return status.Error(codes.Unauthenticated, "no key")
	}
	return nil
}

// greet answers one message, with fields before and after it.
func (s *server) greet(ctx context.Context, name string) (*wrapperspb.StringValue, error) {
	if err := s.admit(ctx); err != nil {
		return nil, err
	}
	if err := grpc.SetTrailer(ctx, metadata.Pairs(trailer, "1")); err != nil {
		return nil, err
	}
	return wrapperspb.String(name + ": " + s.greeting), nil
}

// talk answers each message of a stream as it comes.
func (s *server) talk(stream grpc.ServerStream) error {
	if err := s.admit(stream.Context()); err != nil {
		return err
	}
	for n := 0; ; n++ {
		said := new(wrapperspb.StringValue)
		switch err := stream.RecvMsg(said); {
		case errors.Is(err, io.EOF):
			stream.SetTrailer(metadata.Pairs(trailer, fmt.Sprint(n)))
			return nil
		case err != nil:
			return err
		}
		if err := stream.SendMsg(wrapperspb.String(strings.ToUpper(said.Value))); err != nil {
			return err
		}
	}
}

// serve serves until standard input ends, of which the first line is the token.
func serve(address, certificate, key, greeting string) error {
	pair, err := credentials.NewServerTLSFromFile(certificate, key)
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	var token string
	if _, err := fmt.Scanln(&token); err != nil {
		return err
	}
	s := &server{token: token, greeting: greeting}
	g := grpc.NewServer(grpc.Creds(pair))
	g.RegisterService(&grpc.ServiceDesc{ServiceName: "rein.Lab", HandlerType: (*any)(nil),
		Methods: []grpc.MethodDesc{{MethodName: "Greet", Handler: func(_ any, ctx context.Context, read func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
			name := new(wrapperspb.StringValue)
			if err := read(name); err != nil {
				return nil, err
			}
			return s.greet(ctx, name.Value)
		}}},
		Streams: []grpc.StreamDesc{{StreamName: "Talk", Handler: func(_ any, stream grpc.ServerStream) error { return s.talk(stream) }, ServerStreams: true, ClientStreams: true}},
	}, s)
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin) // its end is all that counts
		g.Stop()
	}()
	fmt.Println("ready")
	return g.Serve(l)
}

// call greets, and talks over a stream turn by turn. Both end with a trailer.
func call(host, token string) error {
	c, err := grpc.NewClient(host+":443", grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{})))
	if err != nil {
		return err
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	ctx = metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+token)
	var last metadata.MD
	answer := new(wrapperspb.StringValue)
	if err := c.Invoke(ctx, greetMethod, wrapperspb.String("Greet"), answer, grpc.Trailer(&last)); err != nil {
		return err
	}
	if got := last.Get(trailer); len(got) != 1 || got[0] != "1" {
		return fmt.Errorf("the trailers of a call are %v", last)
	}
	stream, err := c.NewStream(ctx, &grpc.StreamDesc{StreamName: "Talk", ServerStreams: true, ClientStreams: true}, talkMethod)
	if err != nil {
		return err
	}
	for n := range turns { // each answer is waited for, so that nothing may be held back
		if err := stream.SendMsg(wrapperspb.String(fmt.Sprintf("turn %d", n))); err != nil {
			return err
		}
		said := new(wrapperspb.StringValue)
		if err := stream.RecvMsg(said); err != nil {
			return err
		}
		if want := fmt.Sprintf("TURN %d", n); said.Value != want {
			return fmt.Errorf("the stream answers %q, not %q", said.Value, want)
		}
	}
	if err := stream.CloseSend(); err != nil {
		return err
	}
	if err := stream.RecvMsg(new(wrapperspb.StringValue)); !errors.Is(err, io.EOF) {
		return fmt.Errorf("the stream ends with %v", err)
	}
	if got := stream.Trailer().Get(trailer); len(got) != 1 || got[0] != fmt.Sprint(turns) {
		return fmt.Errorf("the trailers of a stream are %v", stream.Trailer())
	}
	fmt.Println(answer.Value)
	return nil
}
