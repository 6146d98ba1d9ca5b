package control

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"syscall"
	"time"

	"sluice/shaper"
	"sluice/shaper/tree"
)

// Client talks to a sluiced. Its errors are those of shaper.Engine, or an
// UnreachableError.
type Client struct {
	socket string
	http   http.Client
}

// Dial makes a client for a socket; it connects with the first call.
func Dial(socket string) *Client {
	c := &Client{socket: socket}
	c.http.Timeout = 30 * time.Second
	c.http.Transport = &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}}
	return c
}

// Close drops idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// UnreachableError says that no sluiced answered.
type UnreachableError struct {
	Socket string
	Err    error
}

func (e *UnreachableError) Error() string {
	switch {
	case errors.Is(e.Err, fs.ErrNotExist), errors.Is(e.Err, syscall.ECONNREFUSED):
		return fmt.Sprintf("no sluiced is listening at %s; start it, or name its socket with -socket or SLUICE_SOCKET", e.Socket)
	case len(e.Socket) > maxPath:
		return fmt.Sprintf("%s is no socket: its path has more than %d bytes", e.Socket, maxPath)
	case errors.Is(e.Err, fs.ErrPermission):
		return fmt.Sprintf("%s may not be opened by this user; run as root, or join the group named in [control]", e.Socket)
	}
	return fmt.Sprintf("sluiced at %s does not answer: %v", e.Socket, e.Err)
}

func (e *UnreachableError) Unwrap() error { return e.Err }

// Status returns the engine's status.
func (c *Client) Status() (*shaper.Status, error) {
	s := &shaper.Status{}
	if err := c.call(http.MethodGet, "/v1/status", nil, nil, s); err != nil {
		return nil, err
	}
	return s, nil
}

// Qdiscs returns the qdiscs of a port, or of all when dev is empty.
func (c *Client) Qdiscs(dev string) (q []tree.QdiscInfo, err error) {
	err = c.call(http.MethodGet, "/v1/qdiscs", url.Values{"dev": {dev}}, nil, &q)
	return q, err
}

// Classes returns the classes of a port, or of all when dev is empty.
func (c *Client) Classes(dev string) (k []tree.ClassInfo, err error) {
	err = c.call(http.MethodGet, "/v1/classes", url.Values{"dev": {dev}}, nil, &k)
	return k, err
}

// Qdisc edits a qdisc.
func (c *Client) Qdisc(dev string, r tree.Request) error {
	return c.call(http.MethodPost, "/v1/qdisc", url.Values{"dev": {dev}}, r, nil)
}

// Class edits a class.
func (c *Client) Class(dev string, r tree.Request) error {
	return c.call(http.MethodPost, "/v1/class", url.Values{"dev": {dev}}, r, nil)
}

// Apply puts a policy into force.
func (c *Client) Apply(a Apply) (*shaper.Report, error) {
	r := &shaper.Report{}
	if err := c.call(http.MethodPost, "/v1/apply", nil, a, r); err != nil {
		return nil, err
	}
	return r, nil
}

func (c *Client) call(method, path string, query url.Values, in, out any) error {
	var body bytes.Buffer
	if in != nil {
		if err := json.NewEncoder(&body).Encode(in); err != nil {
			return err
		}
	}
	r, err := http.NewRequest(method, "http://sluice"+path+"?"+query.Encode(), &body)
	if err != nil {
		return err
	}
	resp, err := c.http.Do(r)
	if err != nil {
		var u *url.Error
		if errors.As(err, &u) {
			err = u.Err
		}
		return &UnreachableError{c.socket, err}
	}
	defer resp.Body.Close()
	d := json.NewDecoder(resp.Body)
	if resp.StatusCode != http.StatusOK {
		var refused Refusal
		if err := d.Decode(&refused); err != nil {
			return fmt.Errorf("sluiced at %s answered %s, and not in words of ours: %w", c.socket, resp.Status, err)
		}
		return refused.err()
	}
	if out == nil {
		return nil
	}
	if err := d.Decode(out); err != nil {
		return &UnreachableError{c.socket, err}
	}
	return nil
}
