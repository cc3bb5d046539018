package server

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/karat-run/karat"
	"github.com/karat-run/karat/internal/dev/golden"
)

// encoder is a client of a server with an encoder, beside the demo.
func encoder(t *testing.T, o Options) (*client, *karat.Model) {
	t.Helper()
	m, err := karat.Load(t.Context(), golden.Model(t, "embeddinggemma"), karat.Options{Threads: 2})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	o.Models = []Model{{Name: "vectors", Model: m}}
	return serve(t, demo(t), o), m
}

// vectorsOf are the vectors of an answer, in numbers or in base64.
func vectorsOf(t *testing.T, o object) (all [][]float32) {
	t.Helper()
	for i, x := range o["data"].([]any) {
		if at(x, "object") != "embedding" || at(x, "index") != float64(i) {
			t.Fatalf("%v", x)
		}
		var v []float32
		switch e := at(x, "embedding").(type) {
		case string:
			b, err := base64.StdEncoding.DecodeString(e)
			if err != nil {
				t.Fatal(err)
			}
			for c := range slices.Chunk(b, 4) {
				v = append(v, math.Float32frombits(binary.LittleEndian.Uint32(c)))
			}
		case []any:
			for _, x := range e {
				v = append(v, float32(x.(float64)))
			}
		}
		all = append(all, v)
	}
	return all
}

// TestEmbeddings: the vectors are the library's, bit for bit, in numbers and in base64, of texts and of ids, shortened too; and
// usage counts their tokens.
func TestEmbeddings(t *testing.T) {
	c, m := encoder(t, Options{})
	texts, unit := []string{"The sky is blue.", "Le ciel"}, true
	want, err := m.Embed(t.Context(), texts, karat.EmbedOptions{Normalize: &unit})
	if err != nil {
		t.Fatal(err)
	}
	var ids [][]int
	tokens := 0
	for _, text := range texts {
		one, err := m.Tokenize(t.Context(), text, karat.TokenizeOptions{Embed: &karat.EmbedOptions{}})
		if err != nil {
			t.Fatal(err)
		}
		ids, tokens = append(ids, one), tokens+len(one)
	}
	list, err := json.Marshal(ids)
	if err != nil {
		t.Fatal(err)
	}
	for _, input := range []string{`["The sky is blue.","Le ciel"]`, string(list)} {
		for _, form := range []string{"", `,"encoding_format":"base64"`, `,"encoding_format":"float","user":"x"`} {
			o := c.post("/v1/embeddings", `{"model":"vectors","input":`+input+form+`}`)
			if got := vectorsOf(t, o); !slices.EqualFunc(got, want, slices.Equal) {
				t.Errorf("%s %s: %v", input, form, got)
			}
			if at(o, "usage", "prompt_tokens") != float64(tokens) || at(o, "usage", "total_tokens") != float64(tokens) || o["object"] != "list" || o["model"] != "vectors" {
				t.Errorf("%v", o)
			}
		}
	}
	one, err := json.Marshal(ids[0])
	if err != nil {
		t.Fatal(err)
	}
	for _, input := range []string{`"The sky is blue."`, string(one)} {
		if got := vectorsOf(t, c.post("/v1/embeddings", `{"model":"vectors","input":`+input+`}`)); !slices.EqualFunc(got, want[:1], slices.Equal) {
			t.Errorf("%s: %v", input, got)
		}
	}
	short := vectorsOf(t, c.post("/v1/embeddings", `{"model":"vectors","dimensions":5,"input":"The sky is blue."}`))[0]
	var sum float64
	for _, x := range short {
		sum += float64(x) * float64(x)
	}
	if len(short) != 5 || math.Abs(sum-1) > 1e-6 {
		t.Errorf("%v of length %v", short, sum)
	}
	o := c.post("/api/embed", `{"model":"vectors:latest","input":["The sky is blue.","Le ciel"],"truncate":true,"options":{"num_ctx":10},"keep_alive":"5m"}`)
	if at(o, "embeddings", 1, 0) != float64(want[1][0]) && float32(at(o, "embeddings", 1, 0).(float64)) != want[1][0] || o["prompt_eval_count"] != float64(tokens) {
		t.Errorf("%v", o)
	}
	for name, value := range map[string]string{"temprature": "1", "num_ctx": "0"} {
		if status, answer, _ := c.do("POST", "/api/embed", `{"model":"vectors","input":"a","options":{"`+name+`":`+value+`}}`); status != 400 || !strings.Contains(answer, name) {
			t.Errorf("%s: %d %s", name, status, answer)
		}
	}
	if o := c.post("/api/embeddings", `{"model":"vectors","prompt":"Le ciel"}`); len(o["embedding"].([]any)) != len(want[0]) {
		t.Errorf("%v", o)
	}
}

// TestEmbeddingsUnderLoad: vectors have the same bits beside other requests.
func TestEmbeddingsUnderLoad(t *testing.T) {
	c, _ := encoder(t, Options{})
	ask := func(i int) string {
		_, answer, _ := c.do("POST", "/v1/embeddings", fmt.Sprintf(`{"model":"vectors","encoding_format":"base64","input":"text %d %s"}`, i%4, strings.Repeat("a b ", i%4)))
		return answer
	}
	var alone [4]string
	for i := range alone {
		alone[i] = ask(i)
	}
	var wg sync.WaitGroup
	for i := range 16 {
		wg.Go(func() {
			if got := ask(i); got != alone[i%4] {
				t.Errorf("text %d: %.200s, alone %.200s", i%4, got, alone[i%4])
			}
		})
	}
	wg.Wait()
}

// TestEmbeddingsRefused: what cannot be done is an error that names the field.
func TestEmbeddingsRefused(t *testing.T) {
	c, m := encoder(t, Options{})
	post := func(param, holds, body string) {
		t.Helper()
		c.refuses(400, param, holds, "POST", "/v1/embeddings", body)
	}
	post("input", "Missing", `{"model":"vectors"}`)
	post("input", "0 texts", `{"model":"vectors","input":[]}`)
	post("input", "", `{"model":"vectors","input":{"a":1}}`)
	post("input", "", `{"model":"vectors","input":["a",1]}`)
	post("input", "null", `{"model":"vectors","input":["a",null]}`)
	post("input", "empty", `{"model":"vectors","input":[[]]}`)
	post("input", "vocabulary", `{"model":"vectors","input":[-1]}`)
	post("input", "2049 texts", `{"model":"vectors","input":["a"`+strings.Repeat(`,"a"`, 2048)+`]}`)
	room := m.Info().Context
	post("input", fmt.Sprintf("maximum context length is %d tokens. However, you requested %d", room, room+1), `{"model":"vectors","input":[5`+strings.Repeat(`,5`, room)+`]}`)
	post("dimensions", "features", `{"model":"vectors","input":"a","dimensions":100000}`)
	post("dimensions", "", `{"model":"vectors","input":"a","dimensions":0}`)
	post("encoding_format", "float, base64", `{"model":"vectors","input":"a","encoding_format":"int8"}`)
	post("prompt_name", "no prompt", `{"model":"vectors","input":"a","prompt_name":"none"}`)
	post("x", "Unrecognized", `{"model":"vectors","input":"a","x":1}`)
	post("model", "do not say how to make vectors", `{"model":"demo","input":"a"}`)
	c.refuses(404, "model", "", "POST", "/v1/embeddings", `{"model":"none","input":"a"}`)
	c.refuses(400, "model", "This model makes vectors and no tokens", "POST", "/v1/completions", `{"model":"vectors","prompt":"a"}`)
	c.refuses(400, "model", "This model makes vectors and no tokens", "POST", "/v1/completions", `{"model":"vectors","prompt":"a","stream":true}`)
}

// ranks scores documents by their lengths.
type ranks struct{}

func (ranks) rank(_ context.Context, r *ranking) (scores []float64, tokens int, p *problem) {
	for _, d := range r.documents {
		scores, tokens = append(scores, float64(len(d))/100), tokens+len(d)
	}
	return scores, tokens, nil
}

// TestRerank: the forms of Jina, Cohere and TEI, best first, and of equal documents the first one.
func TestRerank(t *testing.T) {
	c := serve(t, demo(t), Options{})
	c.s.ranker = ranks{}
	for _, x := range []struct{ path, body, want string }{
		{"/v1/rerank", `{"model":"demo","query":"q","documents":["aa","bbb","cc"]}`, `{"model":"demo","object":"list","results":[{"index":1,"relevance_score":0.03},{"index":0,"relevance_score":0.02},{"index":2,"relevance_score":0.02}],"usage":{"prompt_tokens":7,"total_tokens":7}}`},
		{"/reranking", `{"query":"q","documents":[{"text":"aa"},"bbb"],"top_n":1,"return_documents":true}`, `{"model":"demo","object":"list","results":[{"document":{"text":"bbb"},"index":1,"relevance_score":0.03}],"usage":{"prompt_tokens":5,"total_tokens":5}}`},
		{"/rerank", `{"query":"q","documents":["a"],"top_n":9}`, `{"model":"demo","object":"list","results":[{"index":0,"relevance_score":0.01}],"usage":{"prompt_tokens":1,"total_tokens":1}}`},
		{"/rerank", `{"query":"q","texts":["a","bb"],"return_text":true,"raw_scores":false,"truncate":true}`, `[{"index":1,"score":0.02,"text":"bb"},{"index":0,"score":0.01,"text":"a"}]`},
	} {
		if status, answer, _ := c.do("POST", x.path, x.body); status != 200 || strings.TrimSpace(answer) != x.want {
			t.Errorf("%s: %d %s, want %s", x.body, status, answer, x.want)
		}
	}
	o := c.post("/v2/rerank", `{"model":"demo","query":"q","documents":["aa","bbb"],"top_n":1}`)
	if id, _ := o["id"].(string); id == "" || at(o, "results", 0, "index") != 1. || at(o, "results", 1) != nil || at(o, "meta", "api_version", "version") != "2" {
		t.Errorf("%v", o)
	}
	for param, body := range map[string]string{
		"query": `{"documents":["a"]}`, "documents": `{"query":"q"}`, "documents[1]": `{"query":"q","documents":["a",1]}`, "top_n": `{"query":"q","documents":["a"],"top_n":-1}`,
		"x": `{"query":"q","documents":["a"],"x":1}`, "documents[0].text": `{"query":"q","documents":[{}]}`, "texts": `{"query":"q","texts":[]}`,
	} {
		c.refuses(400, param, "", "POST", "/v1/rerank", body)
	}
}

// TestRerankModel: scores are the library's, by the function that makes them numbers from 0 to 1 or without it; what is no
// reranker says so, and what does not fit is an error, or cut where that is asked for.
func TestRerankModel(t *testing.T) {
	m, err := karat.Load(t.Context(), golden.Model(t, "xlm-roberta-reranker"), karat.Options{Threads: 2})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	c := serve(t, demo(t), Options{Models: []Model{{Name: "judge", Model: m}}})
	documents := []string{"Cairo is the capital of Egypt.", "The sky is blue.", "Paris"}
	want, err := m.Rerank(t.Context(), "capital of Egypt", documents, karat.RerankOptions{})
	if err != nil {
		t.Fatal(err)
	}
	list, err := json.Marshal(documents)
	if err != nil {
		t.Fatal(err)
	}
	o := c.post("/v1/rerank", `{"model":"judge","query":"capital of Egypt","documents":`+string(list)+`}`)
	status, raw, _ := c.do("POST", "/rerank", `{"model":"judge","query":"capital of Egypt","raw_scores":true,"texts":`+string(list)+`}`)
	var scores []struct {
		Index int
		Score float32
	}
	if err := json.Unmarshal([]byte(raw), &scores); err != nil || status != 200 || len(scores) != 3 {
		t.Fatalf("%d %s", status, raw)
	}
	tokens := 0
	for i, x := range want {
		tokens += x.Tokens
		p := 1 / (1 + math.Exp(-float64(x.Score)))
		if scores[i].Index != x.Index || scores[i].Score != x.Score || at(o, "results", i, "index") != float64(x.Index) || math.Abs(at(o, "results", i, "relevance_score").(float64)-p) > 1e-6 {
			t.Errorf("%d: %v and %v, want %v", i, scores[i], at(o, "results", i), x)
		}
	}
	if at(o, "usage", "total_tokens") != float64(tokens) {
		t.Errorf("%v, want %d tokens", o["usage"], tokens)
	}
	c.refuses(400, "model", "judges documents", "POST", "/v1/rerank", `{"model":"demo","query":"q","documents":["a"]}`)
	long := strings.Repeat("sky ", m.Info().Context)
	c.refuses(400, "documents", "the context holds", "POST", "/v1/rerank", `{"model":"judge","query":"q","documents":["a","`+long+`"]}`)
	c.post("/v1/rerank", `{"model":"judge","query":"q","documents":["a","`+long+`"],"truncation":true}`)
	c.refuses(400, "max_tokens_per_doc", "Unrecognized", "POST", "/v2/rerank", `{"model":"judge","query":"q","documents":["a"],"max_tokens_per_doc":5}`)
}

// TestEncoderContext: an encoder has its own context, however long a one is asked for, and so has a model with a table of positions. A
// text that is too long is an error with both numbers.
func TestEncoderContext(t *testing.T) {
	m, err := karat.Load(t.Context(), golden.Model(t, "bert"), karat.Options{Threads: 1, Context: 65536})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	most := m.Info().MaxContext
	if got := m.Info().Context; got != most || most == 0 {
		t.Fatalf("the context is %d, the model has %d positions", got, most)
	}
	c := serve(t, demo(t), Options{Models: []Model{{Name: "vectors", Model: m}}})
	if _, answer, _ := c.do("GET", "/v1/models/vectors", ""); at(parseObject(t, answer), "max_model_len") != float64(most) {
		t.Errorf("%s", answer)
	}
	both := fmt.Sprintf("%d tokens. However, you requested %d tokens", most, most+1)
	ids := strings.TrimSuffix(strings.Repeat("5,", most+1), ",")
	c.refuses(400, "input", both, "POST", "/v1/embeddings", `{"model":"vectors","input":[`+ids+`]}`)
	c.post("/v1/embeddings", `{"model":"vectors","input":[`+ids[2:]+`]}`)
	status, answer, _ := c.do("POST", "/api/embed", `{"model":"vectors","input":"`+strings.Repeat("hello ", 2*most)+`"}`)
	if want := fmt.Sprintf("%d tokens. However, you requested ", most); status != 400 || !strings.Contains(answer, want) {
		t.Errorf("%d %s", status, answer)
	}
}
