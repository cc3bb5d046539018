package server

import (
	"bytes"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// restart is a client of a server that goes on with the store of c.
func (c *client) restart(o Options) *client {
	c.t.Helper()
	c.s.Close()
	return serve(c.t, demo(c.t), o)
}

// TestDamagedStore: a thing that cannot be read is set aside with its data and a line in the log, and the others are served.
func TestDamagedStore(t *testing.T) {
	dir := t.TempDir()
	c := serve(t, demo(t), Options{Store: dir})
	good, cut := c.keepFile(lines(1)), c.keepFile("cut")
	id := c.startBatch(good)
	c.ended(id)
	c.s.Close()
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	kept, err := os.ReadFile(filepath.Join(dir, id+".json"))
	if err != nil {
		t.Fatal(err)
	}
	write(cut+".json", `{"owner":"","thing":{"id":"`)
	name := func(kind string, i int) string { return kind + strings.Repeat(string(rune('a'+i)), 24) }
	of := func(i int, from, to string) string {
		return strings.Replace(strings.ReplaceAll(string(kept), id, name("batch_", i)), from, to, 1)
	}
	for i, text := range []string{"", "{}", `{"owner":"","thing":{}}`, "null", "[]", "\x00", strings.Repeat(" ", 2<<20) + "{}", of(7, `"times":{`, `"times":{},"x":{`), of(8, `"status":"completed"`, `"status":"x"`),
		of(9, `"outputs":["file-`, `"outputs":["../`), of(10, `"input_file_id":"file-`, `"input_file_id":"lock`), of(11, name("batch_", 11), name("batch_", 12)), of(12, `"counts":{`, `"counts":{"total":"x",`)} {
		write(name("batch_", i)+".json", text)
	}
	write(name("file-", 0)+".json", `{"owner":"","thing":{"id":"`+name("file-", 0)+`","bytes":-5}}`)
	if err := os.Mkdir(filepath.Join(dir, name("file-", 1)+".json"), 0o700); err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	for range 2 { // what is set aside stays so
		c = serve(t, demo(t), Options{Store: dir, Log: slog.New(slog.NewTextHandler(&log, nil))})
		if got := c.ended(id); got["status"] != batchCompleted {
			t.Errorf("%v", got)
		}
		c.refuses(404, "id", "", "GET", "/v1/files/"+cut, "")
		c.s.Close()
		if data, err := os.ReadFile(filepath.Join(dir, cut+".data")); err != nil || string(data) != "cut" {
			t.Errorf("%s %v", data, err)
		}
	}
	if n := strings.Count(log.String(), "is damaged, and set aside"); n != 16 || !strings.Contains(log.String(), cut+".json.damaged") {
		t.Errorf("%d are set aside: %s", n, log.String())
	}
}

// TestKeptCanBeRead: nothing is written that could not be read back.
func TestKeptCanBeRead(t *testing.T) {
	c := serve(t, demo(t), Options{Store: t.TempDir()})
	wrong := ""
	for i := range 150 { // with names of fields that their errors would tell
		wrong += `{"` + strings.Repeat(fmt.Sprint("x", i%7), 20000) + `":1,"custom_id":"a"}` + "\n"
	}
	id := c.startBatch(c.keepFile(wrong))
	o := c.ended(id)
	if o["status"] != batchFailed {
		t.Fatalf("%.500v", o)
	}
	again := c.restart(Options{Store: c.s.o.Store}).ended(id)
	if told := len(fmt.Sprint(again["errors"])); told > 2*maxTold || again["status"] != batchFailed {
		t.Errorf("%d bytes of errors: %.500v", told, again)
	}
	if err := c.s.store.keep("batch_x", "", strings.Repeat("x", maxKept)); err == nil || !strings.Contains(err.Error(), "at most") {
		t.Errorf("%v", err)
	}
}

// TestStoreShares: a key that fills its part of the store leaves the other's, now and after a restart.
func TestStoreShares(t *testing.T) {
	dir := t.TempDir()
	o := Options{Store: dir, Keys: []Key{{Name: "ann", Secret: secret}, {Name: "bob", Secret: "another-secret"}}}
	c := serve(t, demo(t), o)
	ann, bob := c.withKey(secret), c.withKey("another-secret")
	file := ann.keepFile(`{}`)
	id := ann.startBatch(file)
	ann.ended(id)
	full := func(c *client, most int64) { // as if there were as many more things of ann
		c.s.store.things.add("ann", most-c.s.store.things.held["ann"])
	}
	body := `{"input_file_id":"` + file + `","endpoint":"/v1/completions","completion_window":"24h"}`
	for range 2 {
		most := c.s.store.things.most("ann")
		if held := c.s.store.things.held["ann"]; most != maxStored*3/4 || held != 2 {
			t.Errorf("ann has %d things of %d", held, most)
		}
		full(c, most-2) // a batch and its files are three
		ann.refuses(413, "", "keeps no more", "POST", "/v1/batches", body)
		full(c, most)
		if status, answer := ann.send("a", "batch", "x"); status != 413 || !strings.Contains(answer, "storage_full") {
			t.Errorf("%d %s", status, answer)
		}
		bob.ended(bob.startBatch(bob.keepFile(lines(1))))
		full(c, 2)
		c = c.restart(o)
		ann, bob = c.withKey(secret), c.withKey("another-secret")
	}
	bob.refuses(404, "id", "", "DELETE", "/v1/batches/"+id, "")
	if status, text, _ := ann.do("DELETE", "/v1/batches/"+id, ""); status != 200 || !strings.Contains(text, `"object":"batch"`) || !strings.Contains(text, `"deleted":true`) {
		t.Errorf("%d %s", status, text)
	}
	ann.refuses(404, "id", "", "GET", "/v1/batches/"+id, "")
	if held := c.s.store.things.held["ann"]; held != 1 {
		t.Errorf("%d are left", held)
	}
}

// TestUploadsReserve: room is taken before a file is received, so that many at a time take no more than there is.
func TestUploadsReserve(t *testing.T) {
	c := serve(t, demo(t), Options{Store: t.TempDir()})
	c.s.store.bytes.add("", maxStore-100_000)
	var kept atomic.Int64
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if status, answer := c.send("a", "batch", strings.Repeat("x", 60_000)); status == 200 {
				kept.Add(1)
			} else if status != 413 {
				t.Errorf("%d %s", status, answer)
			}
		})
	}
	wg.Wait()
	if held := c.s.store.bytes.held[""]; kept.Load() != 1 || held != maxStore-40_000 || c.s.store.things.held[""] != 1 {
		t.Errorf("%d were kept, %d bytes of %d", kept.Load(), held, int64(maxStore))
	}
	for _, wrong := range [][2]string{{"", "batch"}, {"a", "x"}} {
		c.send(wrong[0], wrong[1], "x")
	}
	if held := c.s.store.bytes.held[""]; held != maxStore-40_000 || c.s.store.things.held[""] != 1 {
		t.Errorf("refused uploads hold %d things, %d bytes", c.s.store.things.held[""], held)
	}
}

// TestExpiry: files and batches that are over go by themselves; a file that a batch reads stays.
func TestExpiry(t *testing.T) {
	c := serve(t, demo(t), Options{Store: t.TempDir(), Requests: 4})
	var later atomic.Int64
	c.s.now = func() time.Time { return time.Now().Add(time.Duration(later.Load())) }
	o := c.ended(c.startBatch(c.keepFile(lines(1))))
	output := o["output_file_id"].(string)
	held := c.keepFile(lines(1))
	later.Store(int64(keepFor - time.Hour))
	c.ended(c.startBatch(held))
	if status, _, _ := c.do("GET", "/v1/files/"+output, ""); status != 200 {
		t.Error(status)
	}
	c.s.rooms.places.take("", 4)
	waits := c.startBatch(held)
	later.Store(int64(keepFor + time.Hour))
	c.s.store.expire(c.s.now())
	for path, want := range map[string]int{"/v1/files/" + output: 404, "/v1/batches/" + o["id"].(string): 404, "/v1/files/" + o["input_file_id"].(string): 404, "/v1/files/" + held: 200, "/v1/batches/" + waits: 200} {
		if status, answer, _ := c.do("GET", path, ""); status != want {
			t.Errorf("%s: %d %s", path, status, answer)
		}
	}
	c.s.rooms.places.give("", 4)
	c.ended(waits)
	c.s.store.mu.Lock()
	things := int64(len(c.s.store.file) + len(c.s.store.job))
	var size int64
	for _, f := range c.s.store.file {
		size += f.Bytes
	}
	c.s.store.mu.Unlock()
	if c.s.store.things.held[""] != things || c.s.store.bytes.held[""] != size {
		t.Errorf("%d things are counted of %d, %d bytes of %d", c.s.store.things.held[""], things, c.s.store.bytes.held[""], size)
	}
}

// TestOwners: whose things are does not change with the lines of the keys; what a version before kept of numbered keys is nobody's.
func TestOwners(t *testing.T) {
	dir := t.TempDir()
	text := "sk-annannann\nsk-bobbobbob\ncarl:sk-carlcarl\n"
	with := func(text string) Options {
		keys, err := ParseKeys(text, "keys")
		if err != nil {
			t.Fatal(err)
		}
		return Options{Store: dir, Keys: keys}
	}
	c := serve(t, demo(t), with(text))
	files := map[string]string{}
	for _, key := range []string{"sk-annannann", "sk-bobbobbob", "sk-carlcarl"} {
		files[key] = c.withKey(key).keepFile(key)
	}
	sees := func(key string, want ...string) {
		t.Helper()
		_, list, _ := c.withKey(key).do("GET", "/v1/files", "")
		for of, id := range files {
			if strings.Contains(list, id) != strings.Contains(fmt.Sprint(want), of) {
				t.Errorf("%s sees %s", key, list)
			}
		}
	}
	c = c.restart(with("sk-bobbobbob\ncarl:sk-renewed-secret\nkey1:sk-explicit\n"))
	sees("sk-bobbobbob", "sk-bobbobbob")
	sees("sk-renewed-secret", "sk-carlcarl") // a name that was given is the key
	sees("sk-explicit")
	c.s.Close()
	for _, id := range files { // as a version before wrote them
		path := filepath.Join(dir, id+".json")
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		old := strings.Replace(string(b), `"version":2,`, "", 1)
		for _, key := range []string{"sk-annannann", "sk-bobbobbob"} {
			old = strings.Replace(old, "key-"+hash12(key), "key1", 1)
		}
		if err := os.WriteFile(path, []byte(old), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	c = c.restart(with("sk-bobbobbob\nkey1:sk-explicit\ncarl:sk-carlcarl"))
	sees("sk-bobbobbob")
	sees("sk-explicit")
	sees("sk-carlcarl", "sk-carlcarl")
}

// TestBatchesWait: few batches of a key are read and run at a time, the oldest first; those of another key do not wait for them.
func TestBatchesWait(t *testing.T) {
	o := Options{Store: t.TempDir(), Requests: 16, Keys: []Key{{Name: "ann", Secret: secret, Batches: 5}, {Name: "bob", Secret: "another-secret"}}}
	c := serve(t, demo(t), o)
	c.holdAfter(0)
	ann, bob := c.withKey(secret), c.withKey("another-secret")
	file := ann.keepFile(lines(3))
	var ids []string
	for range 5 {
		ids = append(ids, ann.startBatch(file))
	}
	ann.refuses(429, "", "has 5 batches that are not over", "POST", "/v1/batches", `{"input_file_id":"`+file+`","endpoint":"/v1/completions","completion_window":"24h"}`)
	states := func(c *client) (n map[string]int) {
		_, text, _ := c.do("GET", "/v1/batches", "")
		n = map[string]int{}
		for _, b := range parseObject(t, text)["data"].([]any) {
			n[at(b, "status").(string)]++
		}
		return n
	}
	eventually(t, func() bool { return states(ann)[batchProgress] == maxRunningOfKey })
	bob.startBatch(bob.keepFile(lines(1)))
	eventually(t, func() bool { return states(bob)[batchProgress] == 1 })
	if got := states(ann); got[batchValidating] != 3 || got[batchProgress] != 2 {
		t.Errorf("%v", got)
	}
	for _, id := range ids { // whether it runs or waits
		ann.post("/v1/batches/"+id+"/cancel", `{}`)
		if o := ann.ended(id); o["status"] != batchCancelled {
			t.Errorf("%v", o)
		}
	}
	if held := c.s.store.things.held["ann"]; held != 6 {
		t.Errorf("%d things are held", held)
	}
}

// TestLongLines: batches of one long line hold it once for each that runs, within the room of bodies; the room comes back.
func TestLongLines(t *testing.T) {
	c := serve(t, demo(t), Options{Store: t.TempDir(), Requests: 8, MaxBody: 4 << 20})
	long := strings.Replace(lines(1), "The sky 0", strings.Repeat("a", 3<<20), 1)
	file := c.keepFile(long + strings.Repeat("x", 5<<20))
	c.s.rooms.bodies.take("", c.s.rooms.bodies.all-(7<<20)) // room for two lines
	var ids []string
	for range 12 {
		ids = append(ids, c.startBatch(file))
	}
	for _, id := range ids {
		if o := c.ended(id); o["status"] != batchFailed || at(o, "errors", "data", 0, "code") != "line_too_large" {
			t.Errorf("%v", o)
		}
	}
	id := c.startBatch(c.keepFile(long))
	if o := c.ended(id); o["status"] != batchCompleted || at(o, "request_counts", "failed") != 1. { // longer than the context
		t.Errorf("%v", o)
	}
	if c.s.rooms.bodies.left() != 7<<20 || c.s.rooms.small.left() != smallBodies {
		t.Errorf("%d and %d bytes are left", c.s.rooms.bodies.left(), c.s.rooms.small.left())
	}
}

// TestBatchRights: a line asks for no more than a request of the key as it is now, and no more lines a minute than it has.
func TestBatchRights(t *testing.T) {
	dir := t.TempDir()
	c := serve(t, demo(t), Options{Store: dir, Requests: 4, Keys: []Key{{Name: "ann", Secret: secret}}}).withKey(secret)
	c.holdAfter(2)
	id := c.startBatch(c.keepFile(lines(6)))
	eventually(t, func() bool {
		_, text, _ := c.do("GET", "/v1/batches/"+id, "")
		return at(parseObject(t, text), "request_counts", "completed") == 2.
	})
	c = c.restart(Options{Store: dir, Requests: 4, Keys: []Key{{Name: "ann", Secret: secret, Routes: []string{"/v1/batches*", "/v1/files*"}}}}).withKey(secret)
	o := c.ended(id)
	if fmt.Sprint(o["request_counts"]) != "map[completed:2 failed:4 total:6]" || at(c.answers(o["error_file_id"])["5"], "response", "status_code") != 403. {
		t.Errorf("%v", o)
	}
	c = c.restart(Options{Store: dir, Requests: 4, Keys: []Key{{Name: "ann", Secret: secret, Lines: 3}}}).withKey(secret)
	var later atomic.Int64
	c.s.now = func() time.Time { return time.Unix(later.Load()+1e9, 0) }
	id = c.startBatch(c.keepFile(lines(6)))
	eventually(t, func() bool {
		_, text, _ := c.do("GET", "/v1/batches/"+id, "")
		return at(parseObject(t, text), "request_counts", "completed") == 3.
	})
	if c.s.gate.keys[0].lines.take(1, c.s.now()) == 0 {
		t.Error("a line is left of the minute")
	}
	c.do("POST", "/v1/batches/"+id+"/cancel", "")
	if o := c.ended(id); at(o, "request_counts", "completed") != 3. {
		t.Errorf("%v", o)
	}
}

// TestManyLines: a file of more lines than a batch has is refused at the first line beyond.
func TestManyLines(t *testing.T) {
	c := serve(t, demo(t), Options{Store: t.TempDir()})
	o := c.ended(c.startBatch(c.keepFile(strings.Repeat("{}\n", maxLines+1) + strings.Repeat("x\n", 1<<20))))
	all := fmt.Sprint(o["errors"])
	if o["status"] != batchFailed || at(o, "request_counts", "total") != maxLines+1. || at(o, "errors", "data", 0, "code") != "too_many_lines" || len(all) > 200 {
		t.Errorf("%.1000v", o)
	}
}
