package deploy

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
)

// apart runs the test again in a network namespace of its own, so that the pod's port is free, and reports whether this process is that one.
func apart(t *testing.T) bool {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("a pod's root folder and network need root")
	}
	if os.Getenv("KARAT_APART") != "" {
		s, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer unix.Close(s)
		up, err := unix.NewIfreq("lo")
		if err != nil {
			t.Fatal(err)
		}
		up.SetUint16(unix.IFF_UP)
		if err := unix.IoctlIfreq(s, unix.SIOCSIFFLAGS, up); err != nil {
			t.Fatal(err)
		}
		return true
	}
	cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Env = append(os.Environ(), "KARAT_APART=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	} else if !bytes.Contains(out, []byte("--- PASS: "+t.Name())) {
		t.Errorf("the test did not run:\n%s", out)
	}
	return false
}

// TestServe starts karat serve as the pods' container does: the rendered command, arguments and variables, and nothing else, as the user 65532, in a
// root folder with the program and the volumes alone. The probes, the metrics, the model's name and the end are what the objects say.
func TestServe(t *testing.T) {
	if !apart(t) {
		return
	}
	program := buildKarat(t)
	pods := map[string]*corev1.PodSpec{"kserve": runtimeOf(t), "kustomize base": podOf(t, kustomized(t, "base")), "kustomize model-image": podOf(t, kustomized(t, "model-image"))}
	for name, x := range cases {
		objects, err := render(t, x.values)
		if err != nil {
			t.Fatal(err)
		}
		pods["chart "+name] = podOf(t, objects)
	}
	for name, pod := range pods {
		t.Run(name, func(t *testing.T) { servePod(t, program, pod) })
	}
}

// servePod runs a pod's container from its start to its end.
func servePod(t *testing.T, program string, pod *corev1.PodSpec) {
	c := pod.Containers[0]
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Dir(dir), 0o755); err != nil {
		t.Fatal(err)
	}
	copyFile(t, program, filepath.Join(dir, "karat"), 0o755)
	kserve := c.Name == "kserve-container"
	mounts := map[string]bool{}
	for _, m := range c.VolumeMounts {
		mounts[m.MountPath] = true
	}
	model := "demo"
	last := c.Args[len(c.Args)-1]
	switch {
	case kserve: // KServe's storage initializer makes this volume
		copyFile(t, root+"/cmd/karat/demo.gguf", filepath.Join(dir, "mnt/models/any-name.gguf"), 0o444)
		model = "small"
	case strings.HasPrefix(last, "/models") && mounts["/models"]:
		path, name := last, "model"
		if last == "/models" {
			path, name = "/models/folder-of-one.gguf", "folder-of-one"
		}
		copyFile(t, root+"/cmd/karat/demo.gguf", filepath.Join(dir, path), 0o444)
		model = name
	}
	key := ""
	if mounts["/keys"] {
		key = "0123456789abcdef-secret"
		writeAll(t, filepath.Join(dir, "keys/keys"), []byte("gateway:"+key+"\n"))
	}
	for _, path := range []string{"/tmp", "/store"} {
		if mounts[path] {
			if err := os.MkdirAll(filepath.Join(dir, path), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.Chown(filepath.Join(dir, path), 65532, 65532); err != nil {
				t.Fatal(err)
			}
		}
	}
	for i, a := range c.Args {
		if a == "--alias" {
			model = c.Args[i+1]
		}
	}

	command := append(append([]string{}, c.Command...), c.Args...)
	cmd := &exec.Cmd{Path: command[0], Args: command, Dir: "/", Env: []string{"HOSTNAME=karat-0", "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "KUBERNETES_SERVICE_HOST=10.0.0.1", "KUBERNETES_SERVICE_PORT=443"}}
	for _, e := range c.Env {
		cmd.Env = append(cmd.Env, e.Name+"="+e.Value)
	}
	if pod.EnableServiceLinks == nil || *pod.EnableServiceLinks {
		cmd.Env = append(cmd.Env, "KARAT_SERVICE_HOST=10.0.0.2", "KARAT_PORT=tcp://10.0.0.2:80", "KARAT_PORT_80_TCP=tcp://10.0.0.2:80")
	} else {
		cmd.Env = append(cmd.Env, "X=1")
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: dir, Credential: &syscall.Credential{Uid: 65532, Gid: 65532}}
	var log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	defer func() {
		cmd.Process.Kill()
		if t.Failed() {
			t.Logf("%q\n%s", command, log.String())
		}
	}()

	port := c.Ports[0].ContainerPort
	base := fmt.Sprintf("http://127.0.0.1:%d", port)
	ask := func(method, path, key, body string) (int, string) {
		t.Helper()
		r, err := http.NewRequest(method, base+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Host = "10.1.2.3:8080" // a pod's address, as the kubelet asks
		if body != "" {
			r.Header.Set("Content-Type", "application/json")
		}
		if key != "" {
			r.Header.Set("Authorization", "Bearer "+key)
		}
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			return 0, err.Error()
		}
		defer answer.Body.Close()
		text, err := io.ReadAll(answer.Body)
		if err != nil {
			return 0, err.Error()
		}
		return answer.StatusCode, string(text)
	}
	probe := func(p *corev1.Probe) (int, string) {
		if n := p.HTTPGet.Port; n.IntValue() != int(port) && n.String() != c.Ports[0].Name {
			t.Fatalf("the probe asks port %s", n.String())
		}
		return ask("GET", p.HTTPGet.Path, "", "")
	}
	for {
		if status, _ := probe(c.StartupProbe); status == 200 {
			break
		}
		select {
		case err := <-ended:
			t.Fatalf("the server ended: %v", err)
		case <-time.After(20 * time.Millisecond):
		}
	}
	for _, p := range []*corev1.Probe{c.ReadinessProbe, c.LivenessProbe} {
		if status, text := probe(p); status != 200 {
			t.Errorf("%s: %d %s", p.HTTPGet.Path, status, text)
		}
	}
	if status, text := ask("GET", "/metrics", key, ""); status != 200 || !strings.Contains(text, "vllm:num_requests_waiting{") {
		t.Errorf("/metrics: %d %.200s", status, text)
	}
	question := `{"model": "` + model + `", "prompt": "The color of the sky is", "max_tokens": 3, "temperature": 0`
	if status, text := ask("POST", "/v1/completions", key, question+"}"); status != 200 || !strings.Contains(text, "blue") {
		t.Errorf("an answer of %s: %d %s", model, status, text)
	}
	if key != "" {
		if status, _ := ask("POST", "/v1/completions", "", question+"}"); status != 401 {
			t.Errorf("without a key: %d", status)
		}
	}
	if mounts["/store"] {
		if status, text := ask("GET", "/v1/batches", key, ""); status != 200 {
			t.Errorf("/v1/batches: %d %s", status, text)
		}
	}

	// The end: an answer under way is whole, and the program ends by itself within the time that the pod has.
	r, err := http.NewRequest("POST", base+"/v1/completions", strings.NewReader(strings.Replace(question, `"max_tokens": 3`, `"max_tokens": 200, "stream": true`, 1)+"}"))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	if key != "" {
		r.Header.Set("Authorization", "Bearer "+key)
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	lines := bufio.NewReader(answer.Body)
	if first, err := lines.ReadString('\n'); err != nil || !strings.HasPrefix(first, "data: {") {
		t.Fatalf("%d %q %v", answer.StatusCode, first, err)
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	rest, err := io.ReadAll(lines)
	if err != nil || !bytes.Contains(rest, []byte("data: [DONE]")) {
		t.Errorf("the answer under way ends with %v: %.300s", err, rest)
	}
	if err := <-ended; err != nil {
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.ExitCode() != 130 && exit.ExitCode() != 143 {
			t.Errorf("the end: %v", err)
		} else {
			t.Logf("exit status %d", exit.ExitCode())
		}
	}
	if sleep := c.Lifecycle.PreStop.Sleep; sleep == nil || pod.TerminationGracePeriodSeconds != nil && *pod.TerminationGracePeriodSeconds < sleep.Seconds+30 {
		t.Error("the pod has less time to end than preStop and the server's 30 seconds")
	}
}

func writeAll(t *testing.T, path string, data []byte) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, data, 0o444); err != nil {
		t.Fatal(err)
	}
}

func copyFile(t *testing.T, from, to string, mode os.FileMode) {
	t.Helper()
	data, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	writeAll(t, to, data)
	if err := os.Chmod(to, mode); err != nil {
		t.Fatal(err)
	}
}
