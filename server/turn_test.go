package server

import "testing"

// TestContinueFinalMessage: an answer goes on with the assistant's last words where the request says so, and else is a turn of its own.
func TestContinueFinalMessage(t *testing.T) {
	c := speak(t, " 42.")
	const talk = `"model":"demo","messages":[{"role":"user","content":"Q"},{"role":"assistant","content":"The answer is"}]`
	const turn, next = "<|im_start|>user\nQ<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\nThe answer is", "<|im_end|>\n"
	for more, want := range map[string]string{
		"": turn + next + "<|im_start|>assistant\n", `,"add_generation_prompt":false`: turn + next,
		`,"continue_final_message":true,"add_generation_prompt":false`: turn, `,"continue_final_message":true`: turn, `,"continue_final_message":false,"add_generation_prompt":true`: turn + next + "<|im_start|>assistant\n",
	} {
		if o := c.post("/apply-template", `{`+talk+more+`}`); o["prompt"] != want {
			t.Errorf("%s: %q, want %q", more, o["prompt"], want)
		}
		text := "42." // white space before an answer of its own is none of it
		if want == turn {
			text = " 42."
		}
		if o := c.post("/v1/chat/completions", `{`+talk+more+`}`); at(o, "choices", 0, "message", "content") != text {
			t.Errorf("%s: %v, want %q", more, o, text)
		}
		if got := c.said("/v1/chat/completions", `{`+talk+more+`,"stream":true}`); got != "0 "+text+" null null stop\n" {
			t.Errorf("%s, streamed: %q, want %q", more, got, text)
		}
	}
	for _, x := range []struct{ param, why, body string }{
		{"add_generation_prompt", "a new turn", `{` + talk + `,"continue_final_message":true,"add_generation_prompt":true}`},
		{"messages", "goes on", `{` + talk + `,"continue_final_message":true,"response_format":{"type":"json_object"}}`},
		{"messages", "goes on", `{` + talk + `,"continue_final_message":true,` + weather + `,"tool_choice":"required"}`},
		{"messages", "no message of the assistant", `{` + ask + `,"continue_final_message":true}`},
	} {
		c.refuses(400, x.param, x.why, "POST", "/v1/chat/completions", x.body)
	}
	thinking := speak(t, " So 42.\n</think>\n\nIt is 42.").post("/v1/chat/completions", `{"model":"demo","messages":[{"role":"user","content":"Q"},{"role":"assistant","content":"<think>\nHm."}],"continue_final_message":true}`)
	if m := at(thinking, "choices", 0, "message"); at(m, "content") != "It is 42." || at(m, "reasoning_content") != " So 42." {
		t.Errorf("%v", m)
	}
}
