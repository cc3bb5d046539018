package karat_test

import (
	"path/filepath"
	"testing"

	"github.com/karat-run/karat"
	"github.com/karat-run/karat/internal/dev/parrot"
)

// TestTurnEnds chats with fine-tunes whose settings name <|endoftext|> alone. The answer ends where the chat template
// ends it, from the GGUF file and from a folder.
func TestTurnEnds(t *testing.T) {
	const each = "{% for m in messages %}"
	for name, x := range map[string]struct{ template, end string }{
		"ChatML":     {each + "<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}", "<|im_end|>"},
		"other name": {each + "[{{ m.role }}] {{ m.content }}{% if m.role == 'assistant' %} [DONE]{% endif %}\n{% endfor %}[assistant]", "[DONE]"},
		"last alone": {each + "<|im_start|>{{ m.role }}\n{{ m.content }}{% if loop.last %}<|over|>{% else %}<|next|>{% endif %}{% endfor %}", "<|over|>"},
	} {
		dir := t.TempDir()
		file, folder := filepath.Join(dir, "p.gguf"), filepath.Join(dir, "p")
		o := parrot.Options{EOS: "<|endoftext|>", Control: []string{"[DONE]", "<|over|>", "<|next|>"}}
		if err := parrot.WriteFile(file, x.template, "Cairo."+x.end+" And more text.", o); err != nil {
			t.Fatal(err)
		}
		if _, err := karat.Convert(t.Context(), file, folder, karat.ConvertOptions{}); err != nil {
			t.Fatal(name, err)
		}
		for _, path := range []string{file, folder} {
			m := open(t, path, karat.Options{})
			text, stop := "", karat.StopReason("")
			for token, err := range m.Chat(t.Context(), []karat.Message{karat.TextMessage(karat.RoleUser, "What is the capital of Egypt?")}, karat.GenerateOptions{}) {
				if err != nil {
					t.Fatal(name, err)
				}
				text, stop = text+token.Text, token.Stop
			}
			if text != "Cairo." || stop != karat.StopEnd {
				t.Errorf("%s, %s: %q, %s", name, filepath.Base(path), text, stop)
			}
		}
	}
}
