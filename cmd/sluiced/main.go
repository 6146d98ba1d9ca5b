// Command sluiced is the service: it reads a configuration, opens the ports it
// names, forwards packets between them through the qdiscs it describes, and
// answers the sluice command on its control socket.
//
//	sluiced [-config FILE] [-check] [-log-level LEVEL] [-version]
//
// SIGHUP reads the configuration again and applies it; when it is refused, what
// runs goes on. SIGTERM and SIGINT stop receiving, send what is queued for at
// most a second, put back what was changed on the interfaces, and end.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	"sluice/qdisc"
	"sluice/shaper"
	"sluice/shaper/config"
	"sluice/shaper/control"
)

// Exit codes.
const (
	exitFailed  = 1
	exitUsage   = 2
	exitRefused = 3 // the configuration is wrong
)

func main() {
	file := flag.String("config", "/etc/sluice/sluice.toml", "configuration `file`")
	check := flag.Bool("check", false, "check the configuration, and end")
	level := slog.LevelInfo
	flag.TextVar(&level, "log-level", slog.LevelInfo, "least `level` to log: debug, info, warn or error")
	version := flag.Bool("version", false, "print the version, and end")
	flag.Parse()
	if flag.NArg() > 0 {
		fmt.Fprintf(os.Stderr, "sluiced: %q is not understood; see sluiced -help\n", flag.Arg(0))
		os.Exit(exitUsage)
	}
	if *version {
		fmt.Println("sluiced", buildVersion())
		return
	}
	c, err := config.Load(*file)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(exitRefused)
	}
	if *check {
		return
	}
	if err := serve(*file, c, newLog(level)); err != nil {
		fmt.Fprintln(os.Stderr, "sluiced:", err)
		var refused *qdisc.Error
		if errors.As(err, &refused) {
			os.Exit(exitRefused)
		}
		os.Exit(exitFailed)
	}
}

// serve runs the engine and its control socket until a signal ends it. The socket
// comes last: who finds it finds an engine behind it.
func serve(file string, c *config.Config, log *slog.Logger) error {
	// The packet path allocates nothing, so the collector only ever works for
	// the admin path; this bounds what it may leave lying about.
	debug.SetMemoryLimit(int64(c.Engine.Packets)*int64(c.Engine.FrameSize) + 256<<20)

	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	hup := make(chan os.Signal, 1)
	signal.Notify(hup, syscall.SIGHUP)
	defer signal.Stop(hup)

	engine, err := shaper.Open(c, shaper.Options{Name: file, Log: log})
	if err != nil {
		return err
	}
	server, err := control.Listen(c.Control.Socket, c.Control.Group, engine, log)
	if err != nil {
		return errors.Join(err, engine.Close())
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve() }()
	ran := make(chan error, 1)
	go func() { ran <- engine.Run(ctx) }()
	log.Info("sluiced is ready", "version", buildVersion(), "config", file, "control", c.Control.Socket)
	notify(log, "READY=1")

	stopping := ctx.Done()
	for {
		select {
		case <-hup:
			reload(file, engine, log)
		case <-stopping:
			notify(log, "STOPPING=1")
			stopping = nil
		case err := <-served: // before Close: only when the socket failed
			log.Error("control socket failed; forwarding goes on", "err", err)
			served = nil
		case err := <-ran:
			err = errors.Join(err, server.Close())
			log.Info("sluiced has stopped")
			return err
		}
	}
}

// reload applies the file as it is now. Edits by hand are not thrown away by a
// signal: then Apply refuses.
func reload(file string, engine *shaper.Engine, log *slog.Logger) {
	c, err := config.Load(file)
	if err == nil {
		_, err = engine.Apply(file, c, false)
	}
	if err == nil {
		return
	}
	if mistakes, ok := err.(config.Errors); ok {
		for _, m := range mistakes {
			log.Error("not reloaded", "err", m)
		}
		log.Error("what runs goes on", "mistakes", len(mistakes))
		return
	}
	log.Error("not reloaded; what runs goes on", "err", err)
}

func buildVersion() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	v := info.Main.Version
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" && v == "(devel)" {
			v = s.Value
		}
	}
	return v
}
