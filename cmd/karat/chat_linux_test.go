package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/karat-run/karat/internal/dev/golden"
	"github.com/karat-run/karat/internal/dev/parrot"
)

// chatAt begins a chat at a terminal, which says "ended" and the exit status at its end.
func chatAt(t *testing.T, state string, args ...string) *console {
	t.Helper()
	program, err := exec.LookPath("karat")
	if err != nil {
		t.Fatal(err)
	}
	c := openConsole(t)
	sh := exec.Command("sh", append([]string{"-c", `trap : INT; "$0" run "$@"; echo "ended $?"`, program}, args...)...)
	sh.Stdin, sh.Stdout, sh.Stderr = c.tty, c.tty, c.tty
	sh.Env = append(os.Environ(), "XDG_STATE_HOME="+state, "TERM=xterm", "NO_COLOR=")
	sh.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := sh.Start(); err != nil {
		golden.Lacking(t, err) // a shell
	}
	t.Cleanup(func() {
		_ = sh.Process.Kill()
		_ = sh.Wait()
	})
	return c
}

// press sends keys and waits for a text, in turn. A text that ends a command is followed by the next line's prompt, before
// which the terminal has no editor.
func (c *console) press(t *testing.T, all ...[2]string) {
	t.Helper()
	for _, keys := range all {
		c.send(t, keys[0])
		text, prompted := strings.CutSuffix(keys[1], ">>> ")
		if c.wait(t, text); prompted {
			c.wait(t, ">>> ")
		}
	}
}

// TestChatKeys: messages of several lines are found again in the next session, and Ctrl-C clears a line before it leaves.
func TestChatKeys(t *testing.T) {
	state := t.TempDir()
	chatAt(t, state, "-n", "2").press(t, [2]string{"", "greedy, as the model recommends no sampling; /set temp 0.8>>> "},
		[2]string{"one\x1b\rtwo", "... two"}, [2]string{"\r", ">>> "}, [2]string{"\x1b[200~three\rfour\x1b[201~", "[paste 1, 2 lines]"}, [2]string{"\r", ">>> "}, [2]string{"/bye\r", "ended 0"})
	chatAt(t, state, "-n", "2", "--temp", "0").press(t, [2]string{"", "/help lists the commands>>> "}, [2]string{"\x1b[A", "/bye"}, [2]string{"\x1b[A", "[paste 1, 2 lines]"},
		[2]string{"\x1b[A", "[paste 2, 2 lines]"}, [2]string{"\x03", "leaves>>> "}, [2]string{"/tok\x03", "leaves>>> "}, [2]string{"/tokens\r", "0 of 4096 tokens>>> "},
		[2]string{"\x03", "leaves>>> "}, [2]string{"\x03", "ended 130"})
}

// TestChatInterrupted: Ctrl-C ends an answer and keeps it, and twice leaves with nothing lost. Markdown and reasoning are a
// terminal's.
func TestChatInterrupted(t *testing.T) {
	template, err := os.ReadFile(filepath.Join(golden.Root(t), "internal/chat/testdata/templates/Qwen-Qwen3-0.6B.jinja"))
	if err != nil {
		t.Fatal(err)
	}
	write := func(text string, o parrot.Options) string {
		path := filepath.Join(t.TempDir(), "parrot.gguf")
		if err := parrot.WriteFile(path, string(template), text, o); err != nil {
			t.Fatal(err)
		}
		return path
	}
	short, long := write("<think>\nHm.\n</think>\n\nIt is **blue**.", parrot.Options{Control: []string{"<think>", "</think>"}}), write("again and again. ", parrot.Options{Loop: true, Context: 1 << 20})
	state := t.TempDir()
	chatAt(t, state, long, "--ctx", "1000000", "--precision", "f64").press(t, [2]string{"", ">>> "}, [2]string{"go\r", "again and"}, [2]string{"\x03", "interrupted>>> "},
		[2]string{"/tokens\r", " of 1000000 tokens>>> "}, [2]string{"\x1b[Abc\x03", "leaves>>> "}, [2]string{"on\r", "again and"}, [2]string{"\x03", "interrupted"}, [2]string{"\x03", "ended 130"})
	last := filepath.Join(state, "karat", "chats", "last.json")
	b, err := os.ReadFile(last)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"content": "go"`, `"content": "on"`, `"content": "again and`} {
		if !strings.Contains(string(b), want) {
			t.Errorf("the last conversation has no %s", want)
		}
	}
	chatAt(t, state, short).press(t, [2]string{"", ">>> "}, [2]string{"Hm?\r", dim + "Hm."}, [2]string{"", "\x1b[J" + dim + "(thought for "}, [2]string{"", "It is " + bold + "blue" + normal + ".>>> "},
		[2]string{"/reasoning\r", "Hm.>>> "}, [2]string{"/load last\r", "loaded 2 messages>>> "}, [2]string{"/bye\r", "ended 0"})
	chatAt(t, state, short, "--plain").press(t, [2]string{"", ">>> "}, [2]string{"Hm?\r", "Thinking: Hm."}, [2]string{"", "It is **blue**.>>> "}, [2]string{"\x04", "ended 0"})
}

// TestChatDamaged: a picture that cannot be shown is forgotten with its message, and the chat goes on.
func TestChatDamaged(t *testing.T) {
	b, err := os.ReadFile(filepath.Join(golden.Shared(t, "goldens/vision/images"), "scene.png"))
	if err != nil {
		t.Fatal(err)
	}
	model, path := golden.Seeded(t, golden.Shared(t, "goldens/vision/qwen3vl")), filepath.Join(t.TempDir(), "a.png")
	golden.Tokenizer(t, model, map[int]string{512: "<|vision_start|>", 513: "<|vision_end|>", 514: "<|image_pad|>"}, "{{ '<t3>' }}"+
		"{% for m in messages %}{% if m.content is string %}{{ m.content }}{% else %}<|vision_start|><|image_pad|><|vision_end|>{% endif %}{% endfor %}")
	if err := os.WriteFile(path, b[:len(b)/2], 0o600); err != nil {
		t.Fatal(err)
	}
	chatAt(t, t.TempDir(), model, "-n", "1").press(t, [2]string{"", ">>> "}, [2]string{"a\r", ">>> "}, [2]string{path + "\r", "comes with the next message>>> "},
		[2]string{"b\r", "its pictures are forgotten>>> "}, [2]string{"b\r", "<t"}, [2]string{"", ">>> "}, [2]string{"/save " + path + ".json\r", "saved 4 messages>>> "}, [2]string{"/bye\r", "ended 0"})
}

// TestSaveKeeps: a conversation is saved for its user alone, and replaces neither another kind of file nor another conversation.
func TestSaveKeeps(t *testing.T) {
	state, dir := t.TempDir(), t.TempDir()
	link := filepath.Join(dir, "link.json")
	if err := os.Symlink(filepath.Join(dir, "target.json"), link); err != nil {
		t.Fatal(err)
	}
	note := filepath.Join(dir, "note.json")
	if err := os.WriteFile(note, []byte("[1, 2]"), 0o644); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "chat.json")
	chatAt(t, state, "-n", "1").press(t, [2]string{"", ">>> "}, [2]string{"one\r", ">>> "}, [2]string{"/save " + path + "\r", "saved 2 messages>>> "}, [2]string{"two\r", ">>> "},
		[2]string{"/save " + path + "\r", "saved 4 messages>>> "}, [2]string{"/save " + note + "\r", "it is left as it is>>> "}, [2]string{"/save " + link + "\r", "karat: >>> "},
		[2]string{"/save " + dir + "/none/x.json\r", "karat: >>> "}, [2]string{"/save " + dir + "/\r", "karat: >>> "}, [2]string{"/clear\r", "forgotten>>> "}, [2]string{"/save " + path + "\r", "has another conversation>>> "},
		[2]string{"three\r", ">>> "}, [2]string{"/save " + path + "\r", "has another conversation>>> "}, [2]string{"/bye\r", "ended 0"})
	st, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	c, err := readChat(path)
	if err != nil || len(c.Messages) != 4 || st.Mode().Perm() != 0o600 {
		t.Errorf("%+v, mode %v, %v", c, st.Mode(), err)
	}
	if b, err := os.ReadFile(note); err != nil || string(b) != "[1, 2]" {
		t.Errorf("the other file is %q, %v", b, err)
	}
	if _, err := os.Lstat(filepath.Join(dir, "target.json")); err == nil {
		t.Error("a link was followed")
	}
}
