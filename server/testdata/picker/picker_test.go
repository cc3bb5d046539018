// Package picker asks a served model what Kubernetes' endpoint picker asks, with the picker's own packages: its reader
// of metrics and its scheduler, and llm-d's subscriber, decoder and index of KV events. It is a module of its own, for its many
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
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/gateway-api-inference-extension/pkg/epp/framework/interface/datalayer"
	framework "sigs.k8s.io/gateway-api-inference-extension/pkg/epp/framework/interface/scheduling"
	extractor "sigs.k8s.io/gateway-api-inference-extension/pkg/epp/framework/plugins/datalayer/extractor/metrics"
	"sigs.k8s.io/gateway-api-inference-extension/pkg/epp/framework/plugins/scheduling/picker"
	profiles "sigs.k8s.io/gateway-api-inference-extension/pkg/epp/framework/plugins/scheduling/profile"
	"sigs.k8s.io/gateway-api-inference-extension/pkg/epp/framework/plugins/scheduling/scorer/kvcacheutilization"
	"sigs.k8s.io/gateway-api-inference-extension/pkg/epp/framework/plugins/scheduling/scorer/queuedepth"
	"sigs.k8s.io/gateway-api-inference-extension/pkg/epp/framework/plugins/scheduling/scorer/runningrequests"
	"sigs.k8s.io/gateway-api-inference-extension/pkg/epp/scheduling"
)

// program builds karat.
func program(t *testing.T) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "karat")
	if out, err := exec.Command("go", "build", "-C", "../../..", "-o", program, "./cmd/karat").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return program
}

// serve starts karat serve with the demo model, and returns its address.
func serve(t *testing.T, program string, flags ...string) (root string) {
	t.Helper()
	c := exec.Command(program, append([]string{"serve", "--port", "0", "--quiet", "--kv-budget", "64MiB"}, flags...)...)
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
	return strings.TrimSuffix(lines.Text(), "/")
}

// free returns a free address.
func free(t *testing.T) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return "tcp://" + l.Addr().String()
}

// scrape reads a replica's metrics for the picker.
func scrape(t *testing.T, root string, pod datalayer.Endpoint) {
	t.Helper()
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
	if err := plugin.(*extractor.Extractor).Extract(t.Context(), families, pod); err != nil {
		t.Error(err)
	}
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
	root := serve(t, program(t), "--lora-folder", t.TempDir())
	for _, labels := range []map[string]string{nil, {"inference.networking.k8s.io/engine-type": "vllm"}} {
		pod := datalayer.NewEndpoint(&datalayer.EndpointMetadata{Labels: labels}, datalayer.NewMetrics())
		scrape(t, root, pod)
		if m := pod.GetMetrics(); m.CacheBlockSize != 64 || m.CacheNumBlocks < 10 || m.MaxActiveModels != 64 ||
			m.WaitingQueueSize != 0 || len(m.ActiveModels) != 0 || m.UpdateTime.IsZero() {
			t.Errorf("%+v", m)
		}
	}
}

// TestScheduler lets the picker's scheduler choose among three replicas by their metrics: a busy one gets nothing while
// others are idle, and all answers are equal, whoever gives them.
func TestScheduler(t *testing.T) {
	p := program(t)
	profile := scheduling.NewSchedulerProfile().
		WithScorers(scheduling.NewWeightedScorer(queuedepth.NewQueueScorer(), 1),
			scheduling.NewWeightedScorer(runningrequests.NewRunningRequestsSizeScorer(), 1),
			scheduling.NewWeightedScorer(kvcacheutilization.NewKVCacheUtilizationScorer(), 1)).
		WithPicker(picker.NewMaxScorePicker(1))
	scheduler := scheduling.NewSchedulerWithConfig(scheduling.NewSchedulerConfig(profiles.NewSingleProfileHandler(),
		map[string]framework.SchedulerProfile{"default": profile}))
	roots, pods := map[string]string{}, []*datalayer.ModelServer{}
	for i := range 3 {
		name := fmt.Sprint("replica-", i)
		roots[name] = serve(t, p)
		pods = append(pods, datalayer.NewEndpoint(&datalayer.EndpointMetadata{PodName: name,
			NamespacedName: types.NamespacedName{Name: name}}, datalayer.NewMetrics()))
	}
	choose := func(n int) string {
		var all []framework.Endpoint
		for _, pod := range pods {
			scrape(t, roots[pod.GetMetadata().PodName], pod)
			all = append(all, framework.NewEndpoint(pod.GetMetadata(), pod.GetMetrics(), nil))
		}
		r, err := scheduler.Schedule(t.Context(), &framework.LLMRequest{RequestId: fmt.Sprint(n), TargetModel: "demo"}, all)
		if err != nil {
			t.Fatal(err)
		}
		return r.ProfileResults[r.PrimaryProfileName].TargetEndpoints[0].GetMetadata().PodName
	}
	// A replica computes eight answers that nothing ends before their 4,000 tokens.
	busy := "replica-1"
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	for range 8 {
		go func() {
			body := `{"model":"demo","prompt":"The sky","max_tokens":4000,"logit_bias":{"1":-100,"106":-100},"stream":true}`
			q, _ := http.NewRequestWithContext(ctx, "POST", roots[busy]+"/v1/completions", strings.NewReader(body))
			q.Header.Set("Content-Type", "application/json")
			if r, err := http.DefaultClient.Do(q); err == nil {
				io.Copy(io.Discard, r.Body)
				r.Body.Close()
			}
		}()
	}
	for {
		scrape(t, roots[busy], pods[1])
		if m := pods[1].GetMetrics(); m.RunningRequestsSize+m.WaitingQueueSize >= 4 {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	type text struct{ Choices []struct{ Text string } }
	var want text
	used := map[string]int{}
	for n := range 20 {
		to := choose(n)
		used[to]++
		var got text
		post(t, roots[to]+"/v1/completions", `{"model":"demo","prompt":"The sea","max_tokens":8,"seed":7}`, &got)
		if n == 0 {
			want = got
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%s says %v, want %v", to, got, want)
		}
	}
	if used[busy] > 0 || len(used) != 2 {
		t.Errorf("requests went to %v", used)
	}
}

// TestKVEvents lets llm-d's index follow a replica: it finds a prompt's pages there, and none of another prompt's.
func TestKVEvents(t *testing.T) {
	events, replay := free(t), free(t)
	root := serve(t, program(t), "--kv-events", events, "--kv-events-replay", replay, "--kv-events-pod", "10.0.0.7:8080")
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
