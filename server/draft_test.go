package server

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/karat-run/karat"
)

// TestPrediction: a prediction changes the counts of a usage and no text; "off" has no drafts. Metrics count by kind.
func TestPrediction(t *testing.T) {
	c := serve(t, demo(t), Options{})
	ask := func(more string) (text string, accepted, rejected float64) {
		o := c.post("/v1/completions", `{"model":"demo","temperature":0,"max_tokens":60,"prompt":"The color of the sky is"`+more+`}`)
		d := at(o, "usage", "completion_tokens_details")
		return at(o, "choices", 0, "text").(string), at(d, "accepted_prediction_tokens").(float64), at(d, "rejected_prediction_tokens").(float64)
	}
	plain, accepted, rejected := ask(`,"draft":"off"`)
	if accepted != 0 || rejected != 0 {
		t.Errorf("without drafts %v tokens are accepted and %v rejected", accepted, rejected)
	}
	quoted, _ := json.Marshal(plain)
	for _, content := range []string{string(quoted), `[{"type":"text","text":` + string(quoted) + `}]`} {
		if text, _, _ := ask(`,"prediction":{"type":"content","content":` + content + `}`); text != plain {
			t.Errorf("with a prediction the text is %q, want %q", text, plain)
		}
	}
	telemetry := newTelemetry()
	telemetry.counts("m").add(usage{drafts: map[string]karat.DraftCount{"prediction": {Accepted: 3, Rejected: 2}}})
	var text strings.Builder
	telemetry.set.WritePrometheus(&text)
	if line := `karat_draft_tokens_total{model_name="m",kind="prediction",result="rejected"} 2`; !strings.Contains(text.String(), line) {
		t.Errorf("no %s in\n%s", line, &text)
	}
	for body, param := range map[string]string{
		`"draft":"mpt"`: "draft", `"prediction":{"type":"text","content":""}`: "prediction.type", `"prediction":{"type":"content"}`: "prediction.content",
		`"prediction":{"type":"content","content":[{"type":"image"}]}`: "prediction.content[0].type",
	} {
		if status, o, _ := c.do("POST", "/v1/completions", `{"model":"demo","prompt":"a",`+body+`}`); status != 400 || !strings.Contains(o, `"param":"`+param+`"`) {
			t.Errorf("%s: %d %s", body, status, o)
		}
	}
}
