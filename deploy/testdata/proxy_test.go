package deploy

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// TestProxies runs three servers behind each proxy, by the configuration of deploy/proxy. Requests that begin alike go to one server. When a server is killed
// in the midst of answers, and another one ends, no request is lost, and each answer is the one that a server alone gives.
func TestProxies(t *testing.T) {
	for _, name := range []string{"haproxy", "nginx"} {
		if _, err := exec.LookPath(name); err != nil && os.Getenv("KARAT_COMPLETE") == "" {
			t.Skip(err)
		}
	}
	if !apart(t) {
		return
	}
	program := buildKarat(t)
	for name, args := range map[string][]string{"haproxy": {"-db", "-f"}, "nginx": {"-g", "daemon off;", "-c"}} {
		suffix := map[string]string{"haproxy": "cfg", "nginx": "conf"}[name]
		t.Run(name, func(t *testing.T) {
			path, err := filepath.Abs(root + "/deploy/proxy/" + name + "." + suffix)
			if err != nil {
				t.Fatal(err)
			}
			cluster := newCluster(t, program)
			start(t, exec.Command(name, append(args, path)...))
			await(t, func() bool { status, _ := post(8080, "", "GET", "/ready", ""); return status == 200 })
			cluster.affine(t)
			cluster.survives(t, func(port int) {
				if name == "haproxy" { // as its configuration says
					c, err := net.Dial("unix", "/tmp/karat-haproxy.sock")
					if err != nil {
						t.Error(err)
						return
					}
					defer c.Close()
					fmt.Fprintf(c, "set server karat/%c state drain\n", rune('a'+port-8081))
					io.ReadAll(c)
				}
			})
		})
	}
}

// buildKarat builds the program as it is in the image, static, and returns its path.
func buildKarat(t *testing.T) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "karat")
	build := exec.Command("go", "build", "-trimpath", "-tags=nogpu", "-o", program, "./cmd/karat")
	build.Dir, build.Env = root, append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return program
}

// cluster has three servers of the demo, at the ports 8081 to 8083.
type cluster struct{ servers map[int]*exec.Cmd }

func newCluster(t *testing.T, program string) *cluster {
	c := &cluster{map[int]*exec.Cmd{}}
	for port := 8081; port <= 8083; port++ {
		c.servers[port] = start(t, exec.Command(program, "serve", "--port", strconv.Itoa(port), "--quiet", "--threads", "1"))
	}
	for port := range c.servers {
		await(t, func() bool { status, _ := post(port, "", "GET", "/ready", ""); return status == 200 })
	}
	return c
}

// start starts a program, which the test's end kills.
func start(t *testing.T, cmd *exec.Cmd) *exec.Cmd {
	t.Helper()
	var log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &log, &log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		cmd.Wait()
		if t.Failed() {
			t.Logf("%q\n%.3000s", cmd.Args, log.String())
		}
	})
	return cmd
}

// await returns when something has come about.
func await(t *testing.T, done func() bool) {
	t.Helper()
	for range 6000 {
		if done() {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
	t.Fatal("it never came about")
}

// post asks a port, and returns the status and the text. A connection that broke has the status 0.
func post(port int, key, method, path, body string) (int, string) {
	r, err := http.NewRequest(method, fmt.Sprintf("http://127.0.0.1:%d%s", port, path), strings.NewReader(body))
	if err != nil {
		return 0, err.Error()
	}
	if key != "" {
		r.Header.Set("Idempotency-Key", key)
	}
	r.Header.Set("Content-Type", "application/json")
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

// complete asks for tokens after a prompt, and returns the answer's text.
func complete(t *testing.T, port int, key, prompt string, tokens int) string {
	t.Helper()
	status, text := post(port, key, "POST", "/v1/completions", fmt.Sprintf(`{"model": "demo", "prompt": %q, "max_tokens": %d}`, prompt, tokens))
	var a struct {
		Choices []struct{ Text string }
	}
	if err := json.Unmarshal([]byte(text), &a); status != 200 || err != nil || len(a.Choices) != 1 {
		t.Errorf("port %d, key %s: %d %.300s", port, key, status, text)
		return ""
	}
	return a.Choices[0].Text
}

var (
	answered = regexp.MustCompile(`(?m)^karat_e2e_request_latency_seconds_count\S* (\d+)`)
	running  = regexp.MustCompile(`(?m)^vllm:num_requests_running\S* (\d+)`)
)

// count returns a number of a server's metrics, 0 where there is none.
func count(port int, of *regexp.Regexp) int {
	_, text := post(port, "", "GET", "/metrics", "")
	m := of.FindStringSubmatch(text)
	if m == nil {
		return 0
	}
	n, _ := strconv.Atoi(m[1])
	return n
}

// beginning is a prompt that is longer than what the proxies look at.
func beginning(i int) string {
	return fmt.Sprintf("Number %d. ", i) + strings.Repeat(fmt.Sprintf("The color of sky %d is blue. ", i), 50)
}

// affine: of 10 beginnings each goes to one server, and not all to the same.
func (c *cluster) affine(t *testing.T) {
	used := map[int]int{}
	for i := range 10 {
		before := map[int]int{}
		for port := range c.servers {
			before[port] = count(port, answered)
		}
		for j := range 3 {
			complete(t, 8080, "", beginning(i)+fmt.Sprint("And ", j), 1)
		}
		var by []int
		for port := range c.servers {
			if n := count(port, answered) - before[port]; n > 0 {
				by = append(by, port)
			}
		}
		if len(by) != 1 {
			t.Errorf("beginning %d went to the servers %v", i, by)
			continue
		}
		used[by[0]]++
	}
	if len(used) < 2 {
		t.Errorf("10 beginnings went to %v", used)
	}
	t.Logf("beginnings by server: %v", used)
}

// survives: 40 requests, eight at a time. A server with work is killed, another one is taken out and told to end.
func (c *cluster) survives(t *testing.T, drain func(port int)) {
	const requests = 40
	want := make([]string, requests)
	for i := range want {
		want[i] = complete(t, 8081, fmt.Sprint("key ", i), beginning(i), 24)
	}
	next := make(chan int)
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for i := range next {
				if got := complete(t, 8080, fmt.Sprint("key ", i), beginning(i), 24); got != want[i] {
					t.Errorf("request %d: %q, a server alone says %q", i, got, want[i])
				}
			}
		})
	}
	for i := range requests {
		next <- i
		switch i {
		case 10:
			await(t, func() bool { return count(8082, running) > 0 || i > 0 && count(8081, running) > 0 })
			victim := 8082
			if count(8082, running) == 0 {
				victim = 8081
			}
			c.servers[victim].Process.Kill()
			delete(c.servers, victim)
			t.Logf("killed %d", victim)
		case 25:
			for port, s := range c.servers {
				if port != 8083 {
					drain(port)
					s.Process.Signal(syscall.SIGTERM)
					t.Logf("ended %d", port)
				}
			}
		}
	}
	close(next)
	all.Wait()
}
