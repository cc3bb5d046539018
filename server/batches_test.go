package server

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"mime/multipart"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/karat-run/karat"
)

// send uploads a file, whose purpose may be said before, too.
func (c *client) send(name, purpose, text string, before ...string) (int, string) {
	c.t.Helper()
	var b bytes.Buffer
	m := multipart.NewWriter(&b)
	for _, p := range before {
		m.WriteField("purpose", p)
	}
	if purpose != "" {
		m.WriteField("purpose", purpose)
	}
	if name != "" {
		w, err := m.CreateFormFile("file", name)
		if err != nil {
			c.t.Fatal(err)
		}
		w.Write([]byte(text))
	}
	m.Close()
	r, err := http.NewRequest("POST", c.url+"/v1/files", &b)
	if err != nil {
		c.t.Fatal(err)
	}
	r.Header.Set("Content-Type", m.FormDataContentType())
	for name, value := range c.header {
		r.Header.Set(name, value)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		c.t.Fatal(err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		c.t.Fatal(err)
	}
	return resp.StatusCode, string(answer)
}

// keepFile uploads a file of a batch, and returns its id.
func (c *client) keepFile(text string) string {
	c.t.Helper()
	status, answer := c.send("lines.jsonl", "batch", text)
	if status != 200 {
		c.t.Fatalf("%d %s", status, answer)
	}
	return parseObject(c.t, answer)["id"].(string)
}

// lines are requests of a batch.
func lines(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `{"custom_id":"%d","method":"POST","url":"/v1/completions","body":{"model":"demo","prompt":"The sky %d","max_tokens":3,"temperature":0}}`+"\n", i, i)
	}
	return b.String()
}

// ended waits for the end of a batch.
func (c *client) ended(id string) (o object) {
	c.t.Helper()
	eventually(c.t, func() bool {
		_, text, _ := c.do("GET", "/v1/batches/"+id, "")
		o = parseObject(c.t, text)
		switch o["status"] {
		case batchCompleted, batchFailed, batchCancelled, batchExpired:
			return true
		}
		return false
	})
	return o
}

func (c *client) startBatch(input string) string {
	c.t.Helper()
	o := c.post("/v1/batches", `{"input_file_id":"`+input+`","endpoint":"/v1/completions","completion_window":"24h","metadata":{"a":"b"}}`)
	if o["object"] != "batch" || o["input_file_id"] != input || at(o, "metadata", "a") != "b" {
		c.t.Fatalf("%v", o)
	}
	return o["id"].(string)
}

// answers are the lines of a file by their custom ids, each of which is to be there once.
func (c *client) answers(id any) map[string]object {
	c.t.Helper()
	all := map[string]object{}
	if id == nil {
		return all
	}
	status, text, _ := c.do("GET", "/v1/files/"+id.(string)+"/content", "")
	if status != 200 {
		c.t.Fatalf("%d %s", status, text)
	}
	for line := range strings.SplitSeq(strings.TrimSuffix(text, "\n"), "\n") {
		o := parseObject(c.t, line)
		name := o["custom_id"].(string)
		if all[name] != nil {
			c.t.Errorf("%s is there twice", name)
		}
		all[name] = o
	}
	return all
}

// TestBatch: each line has its answer, as the route gives it; wrong bodies have errors.
func TestBatch(t *testing.T) {
	c := serve(t, demo(t), Options{Store: t.TempDir()})
	wrong := `{"custom_id":"wrong","method":"POST","url":"/v1/completions","body":{"model":"none","prompt":"a"}}` + "\n"
	id := c.startBatch(c.keepFile(lines(5) + "\n" + wrong))
	o := c.ended(id)
	if o["status"] != batchCompleted || fmt.Sprint(o["request_counts"]) != "map[completed:5 failed:1 total:6]" || o["completed_at"] == nil || o["errors"] != nil {
		t.Fatalf("%v", o)
	}
	out, failed := c.answers(o["output_file_id"]), c.answers(o["error_file_id"])
	if len(out) != 5 || len(failed) != 1 || at(failed["wrong"], "response", "status_code") != 404. || at(failed["wrong"], "response", "body", "error", "code") != "model_not_found" {
		t.Errorf("%v %v", out, failed)
	}
	want := c.post("/v1/completions", `{"model":"demo","prompt":"The sky 3","max_tokens":3,"temperature":0}`)
	if got := out["3"]; at(got, "response", "status_code") != 200. || at(got, "response", "body", "choices", 0, "text") != at(want, "choices", 0, "text") {
		t.Errorf("%v, want %v", got, want)
	}
	if _, text, _ := c.do("GET", "/v1/batches?limit=1", ""); at(parseObject(t, text), "data", 0, "id") != id {
		t.Errorf("%s", text)
	}
	if _, text, _ := c.do("GET", "/v1/files?purpose=batch", ""); strings.Count(text, `"object":"file"`) != 1 {
		t.Errorf("%s", text)
	}
	c.refuses(409, "id", "completed", "POST", "/v1/batches/"+id+"/cancel", "")
	input := o["input_file_id"].(string)
	if status, text, _ := c.do("DELETE", "/v1/files/"+input, ""); status != 200 || !strings.Contains(text, `"deleted":true`) {
		t.Errorf("%d %s", status, text)
	}
	c.refuses(404, "id", "No such file", "GET", "/v1/files/"+input, "")
}

// TestBatchRefused: what is wrong with a file or a batch is said, by line.
func TestBatchRefused(t *testing.T) {
	c := serve(t, demo(t), Options{Store: t.TempDir(), Keys: []Key{{Name: "ann", Secret: secret}, {Name: "bob", Secret: "another-secret", Routes: []string{"/v1/files*", "/v1/batches*"}}}}).withKey(secret)
	for want, x := range map[string][2]string{"'file'": {"", "batch"}, "'purpose'": {"a", ""}, "want batch": {"a", "fine-tune"}} {
		if status, answer := c.send(x[0], x[1], "x"); status != 400 || !strings.Contains(answer, want) {
			t.Errorf("%v: %d %s", x, status, answer)
		}
	}
	for _, first := range []string{"batch", ""} {
		if status, answer := c.send("a", "batch", "x", first); status != 400 || !strings.Contains(answer, "'purpose': the field is there twice") {
			t.Errorf("a purpose of %q and another: %d %s", first, status, answer)
		}
	}
	c.refuses(415, "", "multipart", "POST", "/v1/files", "{}")
	before := c.header
	c.header = map[string]string{"Content-Type": "multipart/form-data; boundary=b", "Content-Encoding": "gzip", "Authorization": before["Authorization"]}
	c.refuses(415, "", "want none for a file", "POST", "/v1/files", zipped("--b--"))
	c.header = before
	good := c.keepFile(lines(1))
	for param, body := range map[string]string{
		"input_file_id":     `{"input_file_id":"file-x","endpoint":"/v1/completions","completion_window":"24h"}`,
		"endpoint":          `{"input_file_id":"` + good + `","endpoint":"/v1/messages","completion_window":"24h"}`,
		"completion_window": `{"input_file_id":"` + good + `","endpoint":"/v1/completions","completion_window":"1h"}`,
		"x":                 `{"input_file_id":"` + good + `","endpoint":"/v1/completions","completion_window":"24h","x":1}`,
	} {
		c.refuses(400, param, "", "POST", "/v1/batches", body)
	}
	bob := c.withKey("another-secret")
	bob.refuses(404, "id", "", "GET", "/v1/files/"+good, "")
	bob.refuses(400, "input_file_id", "", "POST", "/v1/batches", `{"input_file_id":"`+good+`","endpoint":"/v1/completions","completion_window":"24h"}`)
	bob.refuses(403, "", "not good for", "POST", "/v1/batches", `{"input_file_id":"`+bob.keepFile(lines(1))+`","endpoint":"/v1/completions","completion_window":"24h"}`)
	for _, path := range []string{"/v1/files/..%2f..%2fetc%2fpasswd", "/v1/files/file-x/content", "/v1/batches/batch_x"} {
		if status, answer, _ := c.do("GET", path, ""); status != 404 {
			t.Errorf("%s: %d %s", path, status, answer)
		}
	}
	one := lines(1)
	for text, want := range map[string]string{
		"": "no lines", one + one: "there twice", one + "{": "not JSON", strings.Replace(one, "POST", "GET", 1): "want POST", strings.Replace(one, `/v1/completions"`, `/v1/messages"`, 1): "endpoint is",
		strings.Replace(one, `"model"`, `"stream":true,"model"`, 1): "no streams", strings.Replace(one, `"custom_id":"0",`, "", 1): "custom_id", strings.Replace(one, `"method"`, `"x":1,"method"`, 1): "Unrecognized",
	} {
		o := c.ended(c.startBatch(c.keepFile(text)))
		if message, _ := at(o, "errors", "data", 0, "message").(string); o["status"] != batchFailed || !strings.Contains(message, want) || o["output_file_id"] != nil {
			t.Errorf("%q: %v", text, o)
		}
	}
}

// TestBatchCancelled: a batch that is ended before its time keeps what it has.
func TestBatchCancelled(t *testing.T) {
	c := serve(t, demo(t), Options{Store: t.TempDir(), Requests: 4})
	c.holdAfter(2)
	id := c.startBatch(c.keepFile(lines(6)))
	eventually(t, func() bool {
		_, text, _ := c.do("GET", "/v1/batches/"+id, "")
		return at(parseObject(t, text), "request_counts", "completed") == 2.
	})
	c.post("/v1/batches/"+id+"/cancel", `{}`)
	o := c.ended(id)
	if o["status"] != batchCancelled || len(c.answers(o["output_file_id"])) != 2 || o["cancelled_at"] == nil {
		t.Errorf("%v", o)
	}
}

// TestBatchLate: a batch that waits for a full server when its window is over has expired.
func TestBatchLate(t *testing.T) {
	c := serve(t, demo(t), Options{Store: t.TempDir(), Requests: 4})
	var later atomic.Int64
	c.s.now = func() time.Time { return time.Now().Add(time.Duration(later.Load())) }
	c.s.rooms.places.take("", 4)
	id := c.startBatch(c.keepFile(lines(6)))
	eventually(t, func() bool {
		_, text, _ := c.do("GET", "/v1/batches/"+id, "")
		return parseObject(t, text)["status"] == batchProgress
	})
	later.Store(int64(25 * time.Hour))
	if o := c.ended(id); o["status"] != batchExpired {
		t.Errorf("%v", o)
	}
}

// holdAfter has the server compute so many answers, and hold the next until its request ends.
func (c *client) holdAfter(n int) {
	compute := c.s.generate
	left := make(chan struct{}, n)
	for range n {
		left <- struct{}{}
	}
	c.s.generate = func(ctx context.Context, s *karat.Session, ids []int, o karat.GenerateOptions) iter.Seq2[karat.Token, error] {
		select {
		case <-left:
			return compute(ctx, s, ids, o)
		default:
		}
		return func(yield func(karat.Token, error) bool) {
			<-ctx.Done()
			yield(karat.Token{}, ctx.Err())
		}
	}
}

// TestBatchKilled: a server that goes on after a kill, whatever it interrupted, leaves one line for each of the input.
func TestBatchKilled(t *testing.T) {
	dir := t.TempDir()
	c := serve(t, demo(t), Options{Store: dir, Requests: 4})
	c.holdAfter(3)
	id := c.startBatch(c.keepFile(lines(8)))
	eventually(t, func() bool {
		_, text, _ := c.do("GET", "/v1/batches/"+id, "")
		return at(parseObject(t, text), "request_counts", "completed") == 3.
	})
	killed := func(change func(dir string)) string {
		t.Helper()
		to := filepath.Join(t.TempDir(), "store")
		if err := os.CopyFS(to, os.DirFS(dir)); err != nil {
			t.Fatal(err)
		}
		change(to)
		return to
	}
	edit := func(path string, with func(string) string) {
		t.Helper()
		b, err := os.ReadFile(path)
		if err == nil {
			err = os.WriteFile(path, []byte(with(string(b))), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	status := func(s string) func(dir string) {
		return func(dir string) {
			edit(filepath.Join(dir, id+".json"), func(t string) string { return strings.Replace(t, batchProgress, s, 1) })
		}
	}
	for name, change := range map[string]func(dir string){
		"between two lines": func(string) {},
		"within a line": func(dir string) {
			edit(filepath.Join(dir, id+".0"), func(t string) string { return t + `{"custom_id":"5","respo` })
			os.WriteFile(filepath.Join(dir, "file-aaaaaaaaaaaaaaaaaaaaaaaa.tmp"), []byte("x"), 0o600)
			os.WriteFile(filepath.Join(dir, "file-bbbbbbbbbbbbbbbbbbbbbbbb.data"), []byte("x"), 0o600)
			os.WriteFile(filepath.Join(dir, id+".json.tmp"), []byte("{"), 0o600)
		},
		"before the first line": func(dir string) {
			status(batchValidating)(dir)
			os.Remove(filepath.Join(dir, id+".0"))
			os.Remove(filepath.Join(dir, id+".1"))
		},
	} {
		store := killed(change)
		c := serve(t, demo(t), Options{Store: store, Requests: 4})
		o := c.ended(id)
		out := c.answers(o["output_file_id"])
		if o["status"] != batchCompleted || len(out) != 8 || o["error_file_id"] != nil || fmt.Sprint(o["request_counts"]) != "map[completed:8 failed:0 total:8]" {
			t.Errorf("%s: %v", name, o)
		}
		want := c.post("/v1/completions", `{"model":"demo","prompt":"The sky 5","max_tokens":3,"temperature":0}`)
		if at(out["5"], "response", "body", "choices", 0, "text") != at(want, "choices", 0, "text") {
			t.Errorf("%s: %v", name, out["5"])
		}
		for _, left := range []string{"file-aaaaaaaaaaaaaaaaaaaaaaaa.tmp", "file-bbbbbbbbbbbbbbbbbbbbbbbb.data", id + ".json.tmp", id + ".0"} {
			if _, err := os.Stat(filepath.Join(store, left)); err == nil {
				t.Errorf("%s: %s is left", name, left)
			}
		}
		// And while the files are put in their places.
		dir := filepath.Join(t.TempDir(), "store")
		c.s.Close()
		if err := os.CopyFS(dir, os.DirFS(store)); err != nil {
			t.Fatal(err)
		}
		output := o["output_file_id"].(string)
		edit(filepath.Join(dir, id+".json"), func(t string) string {
			return strings.NewReplacer(`"status":"completed"`, `"status":"finalizing"`, `"held":[true,false]`, `"held":[false,false]`).Replace(t)
		})
		if err := os.Remove(filepath.Join(dir, output+".json")); err != nil {
			t.Fatal(err)
		}
		again := serve(t, demo(t), Options{Store: dir})
		if o := again.ended(id); o["output_file_id"] != output || len(again.answers(output)) != 8 {
			t.Errorf("%s, finalizing: %v", name, o)
		}
	}
}

// TestStoreHasOneServer: a second server would run the first one's batches, and remove what it writes.
func TestStoreHasOneServer(t *testing.T) {
	dir := t.TempDir()
	first, err := openStore(dir, nil, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := openStore(dir, nil, slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), "another server uses this folder") {
		t.Errorf("a second server: %v", err)
	}
	if err := first.close(); err != nil {
		t.Fatal(err)
	}
	second, err := openStore(dir, nil, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	second.close()
}

// FuzzBatchLine: a line of a batch's file is read, or refused by what is wrong.
func FuzzBatchLine(f *testing.F) {
	f.Add(strings.TrimSpace(lines(1)))
	f.Add(`{"custom_id":"a","method":"POST","url":"/v1/completions","body":{"stream":null}}`)
	f.Fuzz(func(t *testing.T, text string) {
		var l batchLine
		p := catch(func() { l = readLine([]byte(text), "/v1/completions") })
		if p == nil && (l.id == "" || !json.Valid(l.body)) || p != nil && p.status != 400 {
			t.Fatalf("%q: %v %v", text, l, p)
		}
	})
}
