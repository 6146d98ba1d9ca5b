package main

import (
	"bytes"
	"io"
	"log/slog"
	"net"
	"os"
)

// notify tells a service manager that waits for it (sd_notify) what has become of
// the service.
func notify(log *slog.Logger, state string) {
	name := os.Getenv("NOTIFY_SOCKET")
	if name == "" {
		return
	}
	c, err := net.Dial("unixgram", name)
	if err == nil {
		_, err = c.Write([]byte(state))
		c.Close()
	}
	if err != nil {
		log.Warn("the service manager was not told", "state", state, "err", err)
	}
}

// newLog logs to standard error, and to the journal in its own form when that is
// what standard error is.
func newLog(level slog.Level) *slog.Logger {
	o := &slog.HandlerOptions{Level: level}
	var w io.Writer = os.Stderr
	if os.Getenv("JOURNAL_STREAM") != "" {
		w = journal{w}
		o.ReplaceAttr = func(groups []string, a slog.Attr) slog.Attr {
			if len(groups) == 0 && a.Key == slog.TimeKey {
				return slog.Attr{} // the journal has its own
			}
			return a
		}
	}
	return slog.New(slog.NewTextHandler(w, o))
}

// journal puts in front of each line the priority that the journal looks for
// there (sd-daemon(3)).
type journal struct{ io.Writer }

var priorities = []struct{ level, priority string }{
	{"level=ERROR", "<3>"}, {"level=WARN", "<4>"}, {"level=INFO", "<6>"}, {"level=DEBUG", "<7>"},
}

func (j journal) Write(line []byte) (int, error) {
	for _, p := range priorities {
		if bytes.HasPrefix(line, []byte(p.level)) {
			_, err := j.Writer.Write(append([]byte(p.priority), line...))
			return len(line), err
		}
	}
	return j.Writer.Write(line)
}
