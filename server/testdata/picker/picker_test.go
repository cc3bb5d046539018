// Package picker asks a served model what Kubernetes' endpoint picker asks, with the picker's own packages: its reader
// of metrics, and llm-d's subscriber, decoder and index of KV events. It is a module of its own, for its many
// dependencies: (cd server/testdata/picker && go test .)
package picker

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-zeromq/zmq4"
	"github.com/llm-d/llm-d-kv-cache/pkg/kvcache/kvblock"
	"github.com/llm-d/llm-d-kv-cache/pkg/kvevents"
	"github.com/llm-d/llm-d-kv-cache/pkg/kvevents/engineadapter"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/gateway-api-inference-extension/pkg/epp/framework/interface/datalayer"
	extractor "sigs.k8s.io/gateway-api-inference-extension/pkg/epp/framework/plugins/datalayer/extractor/metrics"
)

// serve starts karat serve with the demo model, and returns its address and those of its events.
func serve(t *testing.T) (root, events, replay string) {
	t.Helper()
	program := filepath.Join(t.TempDir(), "karat")
	if out, err := exec.Command("go", "build", "-C", "../../..", "-o", program, "./cmd/karat").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	free := func() string {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		return "tcp://" + l.Addr().String()
	}
	events, replay = free(), free()
	c := exec.Command(program, "serve", "--port", "0", "--quiet", "--kv-budget", "64MiB", "--kv-events", events,
		"--kv-events-replay", replay, "--kv-events-pod", "10.0.0.7:8080", "--lora-folder", t.TempDir())
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Process.Kill(); c.Wait() })
	lines := bufio.NewScanner(out)
	lines.Scan()
	return strings.TrimSuffix(lines.Text(), "/"), events, replay
}

func post(t *testing.T, url, body string, to any) {
	t.Helper()
	r, err := http.Post(url, "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	text, _ := io.ReadAll(r.Body)
	if err := json.Unmarshal(text, to); err != nil || r.StatusCode != 200 {
		t.Fatalf("%d %s", r.StatusCode, text)
	}
}

// TestMetrics reads /metrics as the picker does, of a pod without labels and of one labelled as vLLM.
func TestMetrics(t *testing.T) {
	root, _, _ := serve(t)
	for _, labels := range []map[string]string{nil, {"inference.networking.k8s.io/engine-type": "vllm"}} {
		r, err := http.Get(root + "/metrics")
		if err != nil {
			t.Fatal(err)
		}
		defer r.Body.Close()
		parser := expfmt.NewTextParser(model.LegacyValidation)
		families, err := parser.TextToMetricFamilies(r.Body)
		if err != nil {
			t.Fatal(err)
		}
		plugin, err := extractor.CoreMetricsExtractorFactory("metrics", nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		pod := datalayer.NewEndpoint(&datalayer.EndpointMetadata{Labels: labels}, datalayer.NewMetrics())
		if err := plugin.(*extractor.Extractor).Extract(t.Context(), families, pod); err != nil {
			t.Error(err)
		}
		if m := pod.GetMetrics(); m.CacheBlockSize != 64 || m.CacheNumBlocks < 10 || m.MaxActiveModels != 64 ||
			m.WaitingQueueSize != 0 || len(m.ActiveModels) != 0 || m.UpdateTime.IsZero() {
			t.Errorf("%+v", m)
		}
	}
}

// TestKVEvents lets llm-d's index follow a replica: it finds a prompt's pages there, and none of another prompt's.
func TestKVEvents(t *testing.T) {
	root, events, replay := serve(t)
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	tokens, err := kvblock.NewChunkedTokenDatabase(&kvblock.TokenProcessorConfig{BlockSizeTokens: 64})
	if err != nil {
		t.Fatal(err)
	}
	index, err := kvblock.NewIndex(ctx, kvblock.DefaultIndexConfig())
	if err != nil {
		t.Fatal(err)
	}
	pool := kvevents.NewPool(kvevents.DefaultConfig(), index, tokens, engineadapter.NewVLLMAdapter())
	pool.Start(ctx)
	defer pool.Shutdown(ctx)
	followers := kvevents.NewSubscriberManager(pool)
	defer followers.Shutdown(ctx)
	if err := followers.EnsureSubscriber(ctx, "replica", events, "kv@", true); err != nil {
		t.Fatal(err)
	}
	// keys returns a prompt's keys, as the router makes them of the tokens that /render has.
	keys := func(text string) []kvblock.BlockHash {
		var prompts []struct {
			Tokens []uint32 `json:"token_ids"`
		}
		post(t, root+"/v1/completions/render", fmt.Sprintf(`{"model":"demo","prompt":%q}`, text), &prompts)
		k, err := tokens.TokensToKVBlockKeys(kvblock.EmptyBlockHash, prompts[0].Tokens, "demo", nil)
		if err != nil {
			t.Fatal(err)
		}
		return k
	}
	found := func(k []kvblock.BlockHash) (n int) {
		if len(k) == 0 {
			return 0
		}
		pods, err := index.Lookup(ctx, k, sets.New[string]())
		if err != nil {
			t.Fatal(err)
		}
		for _, key := range k {
			if all := pods[key]; len(all) == 1 && all[0].PodIdentifier == "10.0.0.7:8080" {
				n++
			}
		}
		return n
	}
	// Nobody says when a subscriber has arrived, so a prompt is new until its pages are found.
	text := ""
	var k []kvblock.BlockHash
	for i := 0; found(k) == 0; i++ {
		if i == 100 {
			t.Fatal("no event has arrived")
		}
		text = fmt.Sprintf("%d. %s", i, strings.Repeat("The sky is blue and the sea is green. ", 30))
		var answer any
		post(t, root+"/v1/completions", fmt.Sprintf(`{"model":"demo","prompt":%q,"max_tokens":1}`, text), &answer)
		k = keys(text)
		for wait := 0; wait < 50 && found(k) == 0; wait++ {
			time.Sleep(10 * time.Millisecond)
		}
	}
	for found(k) < len(k) {
		time.Sleep(10 * time.Millisecond)
	}
	if len(k) < 4 {
		t.Fatalf("the prompt has %d pages", len(k))
	}
	if n := found(keys("Another prompt. " + text)); n != 0 {
		t.Errorf("%d pages of a prompt that nobody asked", n)
	}

	// A replay has all batches from the first on.
	dealer := zmq4.NewDealer(ctx)
	defer dealer.Close()
	if err := dealer.Dial(replay); err != nil {
		t.Fatal(err)
	}
	if err := dealer.SendMulti(zmq4.NewMsgFrom([]byte{}, make([]byte, 8))); err != nil {
		t.Fatal(err)
	}
	stored := 0
	for n := 0; ; n++ {
		m, err := dealer.Recv()
		if err != nil {
			t.Fatal(err)
		}
		if len(m.Frames) != 4 {
			t.Fatalf("%d frames", len(m.Frames))
		}
		if len(m.Frames[3]) == 0 {
			break
		}
		if !bytes.Equal(m.Frames[2], []byte{0, 0, 0, 0, 0, 0, 0, byte(n)}) {
			t.Errorf("batch %d has the number %x", n, m.Frames[2])
		}
		pod, name, batch, err := engineadapter.NewVLLMAdapter().ParseMessage(&kvevents.RawMessage{Topic: string(m.Frames[1]), Payload: m.Frames[3]})
		if err != nil || pod != "10.0.0.7:8080" || name != "demo" && n > 0 {
			t.Errorf("%s %s: %v", pod, name, err)
		}
		for _, e := range batch.Events {
			if s, ok := e.(*kvevents.BlockStoredEvent); ok {
				stored += len(s.BlockHashes)
			}
		}
	}
	if stored < len(k) {
		t.Errorf("a replay has %d pages, want %d or more", stored, len(k))
	}
}
