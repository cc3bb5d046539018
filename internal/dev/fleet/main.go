//go:build unix

// Command fleet sends requests to replicas behind HAProxy while replicas are killed, stopped and drained, and compares
// each answer with a single replica's. It ends with an error if a request has no answer, or another answer.
//
//	go build -o /tmp/karat ./cmd/karat
//	go run ./internal/dev/fleet -program /tmp/karat
//
// HAProxy must be installed. What it measures depends on the machine; that nothing is lost does not.
package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// The proxy sends a request again, to another replica, if a replica refuses, goes or says that it shuts down: requests
// have seeds, so an answer is the same whoever gives it, and however often it is asked for.
const config = `global
    maxconn 1000
defaults
    mode http
    timeout connect 1s
    timeout client 60s
    timeout server 60s
    timeout check 2s
    retries 3
    option redispatch 1
    retry-on conn-failure empty-response response-timeout 503
frontend in
    bind 127.0.0.1:%d
    default_backend replicas
backend replicas
    balance leastconn
    option httpchk
    http-check send meth GET uri /ready ver HTTP/1.1 hdr Host localhost
    default-server check inter 300ms fall 2 rise 1 on-marked-down shutdown-sessions
`

// replica is a process of karat serve.
type replica struct {
	port    int
	mu      sync.Mutex
	process *exec.Cmd
}

var (
	program  = flag.String("program", "karat", "the program to serve with")
	replicas = flag.Int("replicas", 3, "replicas")
	requests = flag.Int("requests", 2000, "requests")
	clients  = flag.Int("clients", 8, "requests at a time")
	tokens   = flag.Int("tokens", 32, "tokens of an answer")
	seed     = flag.Uint64("seed", 1, "seed of prompts and of disturbances")
)

func port() int {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

// start starts the replica, and waits until it is ready.
func (r *replica) start() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.process = exec.Command(*program, "serve", "--port", fmt.Sprint(r.port), "--quiet", "--no-page", "--ctx", "512",
		"--kv-budget", "64MiB")
	r.process.Stderr = os.Stderr
	if err := r.process.Start(); err != nil {
		log.Fatal(err)
	}
	for !r.ready() {
		time.Sleep(20 * time.Millisecond)
	}
}

func (r *replica) ready() bool {
	a, err := http.Get(fmt.Sprintf("http://127.0.0.1:%d/ready", r.port))
	if err == nil {
		a.Body.Close()
	}
	return err == nil && a.StatusCode == http.StatusOK
}

// end ends the replica by a signal, and returns when it has ended.
func (r *replica) end(by syscall.Signal) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.process.Process.Signal(by)
	r.process.Wait()
}

// kinds are different requests. Each has a seed, so each has one answer.
func body(kind int, stream bool) []byte {
	prompt := fmt.Sprintf("%s%d. The capital of Egypt is", strings.Repeat("The sky is blue. ", 5+kind%4*5), kind)
	b, err := json.Marshal(map[string]any{"model": "demo", "prompt": prompt, "max_tokens": *tokens, "seed": kind,
		"stream": stream, "draft": "off"})
	if err != nil {
		log.Fatal(err)
	}
	return b
}

var errStatus = errors.New("no answer")

// ask returns the text of an answer. A stream that ends without [DONE] is no answer.
func ask(url string, kind int, stream bool, see func()) (string, error) {
	r, err := http.Post(url+"/v1/completions", "application/json", bytes.NewReader(body(kind, stream)))
	if err != nil {
		return "", err
	}
	defer r.Body.Close()
	if r.StatusCode != http.StatusOK {
		return "", fmt.Errorf("%w: status %d", errStatus, r.StatusCode)
	}
	type answer struct{ Choices []struct{ Text string } }
	if !stream {
		var a answer
		if err := json.NewDecoder(r.Body).Decode(&a); err != nil || len(a.Choices) == 0 {
			return "", fmt.Errorf("%w: %v", errStatus, err)
		}
		return a.Choices[0].Text, nil
	}
	text, lines := "", bufio.NewScanner(r.Body)
	for lines.Scan() {
		data, is := strings.CutPrefix(lines.Text(), "data: ")
		switch {
		case !is:
			continue
		case data == "[DONE]":
			return text, nil
		}
		var a answer
		if err := json.Unmarshal([]byte(data), &a); err != nil || len(a.Choices) == 0 {
			return "", fmt.Errorf("%w: %.80s", errStatus, data)
		}
		text += a.Choices[0].Text
		see()
	}
	return "", io.ErrUnexpectedEOF
}

func main() {
	log.SetFlags(0)
	flag.Parse()
	dir, err := os.MkdirTemp("", "fleet")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	all := make([]*replica, *replicas)
	in := port()
	text := fmt.Sprintf(config, in)
	var wg sync.WaitGroup
	for i := range all {
		all[i] = &replica{port: port()}
		text += fmt.Sprintf("    server r%d 127.0.0.1:%d\n", i, all[i].port)
		wg.Go(all[i].start)
	}
	wg.Wait()
	defer func() {
		for _, r := range all {
			r.end(syscall.SIGKILL)
		}
	}()
	file := filepath.Join(dir, "haproxy.cfg")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		log.Fatal(err)
	}
	proxy := exec.Command("haproxy", "-f", file)
	proxy.Stderr = os.Stderr
	if err := proxy.Start(); err != nil {
		log.Print(err)
		return
	}
	defer proxy.Process.Kill()
	gone := make(chan error, 1)
	go func() { gone <- proxy.Wait() }()
	for !(&replica{port: in}).ready() {
		select {
		case err := <-gone:
			log.Print("haproxy: ", err)
			return
		case <-time.After(20 * time.Millisecond):
		}
	}
	direct, behind := fmt.Sprintf("http://127.0.0.1:%d", all[0].port), fmt.Sprintf("http://127.0.0.1:%d", in)

	const kinds = 50
	want := make([]string, kinds)
	for i := range want {
		if want[i], err = ask(direct, i, false, nil); err != nil {
			log.Print(err)
			return
		}
	}
	overhead(direct, behind)
	if !disturb(all, behind, want) {
		defer os.Exit(1)
	}
}

// overhead prints the medians of the time of a streamed answer, asked of a replica and through the proxy in turn.
func overhead(direct, behind string) {
	times := map[string][]time.Duration{}
	pieces := 0
	for i := range 100 {
		for _, url := range []string{direct, behind} {
			began := time.Now()
			if _, err := ask(url, i%10, true, func() { pieces++ }); err != nil {
				log.Print(err)
				return
			}
			times[url] = append(times[url], time.Since(began))
		}
	}
	median := func(url string) time.Duration {
		slices.Sort(times[url])
		return times[url][len(times[url])/2]
	}
	a, b, each := median(direct), median(behind), float64(pieces)/200
	fmt.Printf("a stream of %.1f pieces: %v of a replica, %v through the proxy (medians of 100), %v more a piece\n",
		each, a.Round(time.Microsecond), b.Round(time.Microsecond),
		time.Duration(float64(b-a)/each).Round(time.Microsecond))
}

// disturb sends the requests while replicas go, and reports whether each has its answer.
func disturb(all []*replica, url string, want []string) bool {
	var done, lost, other, again, killed, drained, stopped, troubles atomic.Int64
	over := make(chan struct{})
	var wg, trouble sync.WaitGroup
	trouble.Go(func() { // one replica at a time, another each time
		r := rand.New(rand.NewPCG(*seed, 1))
		for n := int64(0); ; n++ {
			troubles.Store(n)
			for done.Load() < 40*(n+1) {
				select {
				case <-over:
					return
				case <-time.After(10 * time.Millisecond):
				}
			}
			x := all[r.IntN(len(all))]
			switch n % 4 {
			case 0, 2:
				x.end(syscall.SIGKILL)
				killed.Add(1)
				x.start()
			case 1: // ends by itself, when its answers have
				x.end(syscall.SIGTERM)
				drained.Add(1)
				x.start()
			case 3: // does nothing for a while, as on a machine that swaps
				x.process.Process.Signal(syscall.SIGSTOP)
				time.Sleep(2 * time.Second)
				x.process.Process.Signal(syscall.SIGCONT)
				stopped.Add(1)
			}
		}
	})
	work := make(chan int)
	for range *clients {
		wg.Go(func() {
			for i := range work {
				kind, text, err := i%len(want), "", error(nil)
				for try := range 6 { // as OpenAI's packages repeat, which wait longer each time
					if text, err = ask(url, kind, i%2 == 0, func() {}); err == nil {
						break
					}
					again.Add(1)
					time.Sleep(50 * time.Millisecond << try)
				}
				switch {
				case err != nil:
					log.Printf("request %d: %v", i, err)
					lost.Add(1)
				case text != want[kind]:
					log.Printf("request %d: %q, want %q", i, text, want[kind])
					other.Add(1)
				}
				done.Add(1)
			}
		})
	}
	began := time.Now()
	for i := range *requests {
		for int64(i) >= 40*(troubles.Load()+3) { // requests are not over before the troubles
			time.Sleep(time.Millisecond)
		}
		work <- i
	}
	close(work)
	wg.Wait()
	took := time.Since(began)
	close(over)
	trouble.Wait()
	fmt.Printf("%d requests in %.0f s: %d lost, %d with another answer, %d repeats by clients\n"+
		"replicas killed %d times, drained %d times, stopped for 2 s %d times\n",
		*requests, took.Seconds(), lost.Load(), other.Load(), again.Load(), killed.Load(), drained.Load(),
		stopped.Load())
	return lost.Load()+other.Load() == 0
}
