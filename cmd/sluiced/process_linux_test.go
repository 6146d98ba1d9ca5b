package main_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

func TestIntegrationWithoutPrivilegesItSaysWhichItNeeds(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root can give up its rights")
	}
	dir := t.TempDir()
	// Nobody has to get at the program and the file.
	program, config := filepath.Join("/proc/self/fd", "3"), write(t, `version = 1
[control]
socket = "%s"
[link.l]
inside = "lo"
outside = "nothing0"
`, filepath.Join(dir, "s"))
	file, err := os.Open(filepath.Join(bin, "sluiced"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	text, err := os.Open(config)
	if err != nil {
		t.Fatal(err)
	}
	defer text.Close()
	cmd := exec.Command(program, "-config", "/proc/self/fd/4")
	cmd.ExtraFiles = []*os.File{file, text}
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWNET, // whose lo nobody uses
		Credential: &syscall.Credential{Uid: 65534, Gid: 65534},
	}
	out, err := cmd.CombinedOutput()
	if cmd.ProcessState == nil {
		t.Skip("no namespace to be had: ", err)
	}
	if code := cmd.ProcessState.ExitCode(); code != 1 || !strings.Contains(string(out), "run as root or with CAP_NET_ADMIN") {
		t.Errorf("exit %d:\n%s", code, out)
	}
}
