package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/karat-run/karat/internal/dev/golden"
	"github.com/karat-run/karat/internal/dev/parrot"
)

// TestConsent: at a terminal each call of a tool is asked for, until "always"; Ctrl-C in place of an answer forgets the message. The saved conversation
// has calls and results.
func TestConsent(t *testing.T) {
	template, err := os.ReadFile(filepath.Join(golden.Root(t), "internal/chat/testdata/templates/Qwen-Qwen3-0.6B.jinja"))
	if err != nil {
		t.Fatal(err)
	}
	state, dir := t.TempDir(), t.TempDir()
	model, config, saved := filepath.Join(dir, "parrot.gguf"), filepath.Join(dir, "mcp.json"), filepath.Join(dir, "chat.json")
	err = parrot.WriteFile(model, string(template), "<tool_call>\n{\"name\": \"expect\", \"arguments\": {\"tap\": \"a\\u001b[2Jb\"}}\n</tool_call>",
		parrot.Options{Control: []string{"<tool_response>"}, After: "<tool_response>", Then: "Understood.", Context: 32768})
	if err == nil {
		err = os.WriteFile(config, []byte(`{"mcpServers": {"lab": {"command": "karat", "args": ["lab", "mcp"]}}}`), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	asks := [2]string{"Go\r", `karat: the model calls lab/expect with {"tap":"a`}
	chat := []string{model, "--mcp", config, "--ctx", "16384", "-v"}
	chatAt(t, state, chat...).press(t, [2]string{"", ">>> "}, asks, [2]string{"", "[N]o: "}, [2]string{"\x03", "the message is forgotten>>> "}, [2]string{"/tokens\r", "0 of 16384 tokens>>> "},
		asks, [2]string{"", "[N]o: "}, [2]string{"\r", "error: the user has refused this call"}, [2]string{"", "Understood."}, [2]string{"", ">>> "},
		[2]string{"/save " + saved + "\r", "saved 4 messages>>> "}, [2]string{"/clear\r", ">>> "}, asks, [2]string{"", "[N]o: "}, [2]string{"y\r", `missing properties: ["model"`}, [2]string{"", ">>> "},
		[2]string{"/clear\r", ">>> "}, asks, [2]string{"", "[N]o: "}, [2]string{"a\r", `missing properties: ["model"`}, [2]string{"", ">>> "},
		[2]string{"/clear\r", ">>> "}, [2]string{"Go\r", `missing properties: ["model"`}, [2]string{"", "Understood."}, [2]string{"", ">>> "}, [2]string{"/bye\r", "ended 0"})
	c, err := readChat(saved)
	if err != nil {
		t.Fatal(err)
	}
	m := c.Messages
	if len(m) != 4 || len(m[1].Calls) != 1 || m[1].Calls[0].Name != "expect" || m[2].ID != m[1].Calls[0].ID || !strings.Contains(m[2].Content, "refused") || m[3].Content != "Understood." {
		t.Errorf("saved %+v", m)
	}
	chatAt(t, state, chat[:1]...).press(t, [2]string{"", ">>> "}, [2]string{"/load " + saved + "\r", "loaded 4 messages>>> "}, [2]string{"/save " + saved + "\r", "saved 4 messages>>> "}, [2]string{"/bye\r", "ended 0"})
	if again, err := readChat(saved); err != nil || fmt.Sprint(again) == "" || len(again.Messages[1].Calls) != 1 {
		t.Errorf("saved again: %+v, %v", again, err)
	}
	one := append(chat, "--mcp-allow", "lab/record", "Go")
	chatAt(t, state, one...).press(t, [2]string{"", asks[1]}, [2]string{"", "[N]o: "}, [2]string{"y\n", `missing properties: ["model"`}, [2]string{"", "Understood."}, [2]string{"", "ended 0"})
	chatAt(t, state, one...).press(t, [2]string{"", asks[1]}, [2]string{"", "[N]o: "}, [2]string{"\x03", "ended 130"})
	for _, wrong := range []string{`[{"role":"user","content":"a"},{"role":"tool","content":"a"}]`, `[{"role":"user","content":"a"},{"role":"assistant","content":"","tool_calls":[{"id":"1","name":"a","arguments":{}}]}]`,
		`[{"role":"user","content":"a"},{"role":"assistant","content":"","tool_calls":[{"id":"1","name":"a","arguments":{}}]},{"role":"tool","tool_call_id":"2","content":""}]`} {
		if err := os.WriteFile(saved, []byte(`{"karat_chat":1,"model":"a","messages":`+wrong+`}`), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := readChat(saved); err == nil {
			t.Errorf("%s is taken", wrong)
		}
	}
}
