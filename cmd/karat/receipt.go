package main

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/karat-run/karat"
	"github.com/karat-run/karat/internal/atomicfile"
	"github.com/karat-run/karat/internal/patherr"
	"github.com/spf13/cobra"
)

// receiptFlags are the flags of commands that write receipts.
type receiptFlags struct {
	out, key string
	signer   ed25519.PrivateKey
}

func (f *receiptFlags) add(c *command) { c.flags("receipt", file(&f.out), "receipt-key", file(&f.key)) }

// check returns an error for flags that contradict each other.
func (f *receiptFlags) check() error {
	if f.key != "" && f.out == "" {
		return usagef("--receipt-key needs --receipt")
	}
	switch f.out {
	case "":
		return nil
	case "-":
		return usagef("--receipt -: standard output has the answer, so name a file")
	}
	return atomicfile.Check(f.out)
}

// write signs the receipt of an answer, and writes it.
func (f *receiptFlags) write(r *karat.Receipt) error {
	if err := r.Sign(f.signer); err != nil {
		return err
	}
	b := must(r.Bytes())
	return atomicfile.Write(f.out, func(w io.Writer) error {
		_, err := w.Write(b)
		return err
	})
}

// keyType is the type of a PEM block with a private key, as openssl writes it.
const keyType = "PRIVATE KEY"

// signingKey reads the key of receipts from a file, the user's own for "". An absent file is made, readable by the user
// alone, and x says so.
func signingKey(x *call, path string) (ed25519.PrivateKey, error) {
	if path == "" {
		if path = stateFile("receipt-key.pem"); path == "" {
			return nil, errors.New("there is no folder for a key of receipts: --receipt-key FILE names one")
		}
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			return nil, patherr.Plain(err)
		}
	}
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		if err := newKey(path); err != nil {
			return nil, err
		}
		x.note(path + ": there was no such file, it has a new key of receipts now")
		b, err = os.ReadFile(path) // of two programs that make a key, the later one's
	}
	if err != nil {
		return nil, patherr.Plain(err)
	}
	block, _ := pem.Decode(b)
	if block == nil || block.Type != keyType {
		return nil, fmt.Errorf("%s: no PEM block %q", path, keyType)
	}
	parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	key, ok := parsed.(ed25519.PrivateKey)
	if !ok {
		return nil, fmt.Errorf("%s: a key of another kind, receipts are signed by ed25519 keys", path)
	}
	return key, nil
}

// newKey makes a key, and writes it to a new file.
func newKey(path string) error {
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return err
	}
	b, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	return atomicfile.WriteSecret(path, func(w io.Writer) error {
		return pem.Encode(w, &pem.Block{Type: keyType, Bytes: b})
	})
}

// publicKey reads a public key: 64 hexadecimal digits, or a file with a private or a public key.
func publicKey(x *call, text string) (ed25519.PublicKey, error) {
	if b, err := hex.DecodeString(text); err == nil && len(b) == ed25519.PublicKeySize {
		return b, nil
	}
	b, err := os.ReadFile(text)
	if err != nil {
		return nil, usagef("--key %s: neither 64 hexadecimal digits nor a file: %w", oneLine(text), patherr.Plain(err))
	}
	if block, _ := pem.Decode(b); block != nil {
		if parsed, err := x509.ParsePKIXPublicKey(block.Bytes); err == nil {
			if key, ok := parsed.(ed25519.PublicKey); ok {
				return key, nil
			}
		}
		if key, err := signingKey(x, text); err == nil {
			return key.Public().(ed25519.PublicKey), nil
		}
	}
	return nil, usagef("--key %s: no ed25519 key in PEM", oneLine(text))
}

// verifyFlags are the flags of verify.
type verifyFlags struct {
	key, template, at string
	json              bool
	engine            engineFlags
}

func newVerifyCommand() *cobra.Command {
	var f verifyFlags
	c := define("verify", f.run)
	c.takesModel()
	c.flags("key", file(&f.key), "at", &f.at, "chat-template", file(&f.template),
		"lora", f.engine.addLora, "json", &f.json)
	f.engine.addDevice(c)
	return c.Command
}

func (f *verifyFlags) run(x *call) error {
	var o karat.VerifyOptions
	if f.key != "" {
		o.Key = must(publicKey(x, f.key))
	}
	if f.at == "" && x.changed("at") {
		return usagef("--at: it is empty, want numbers of tokens from 0, and ranges, as 0,10-19")
	}
	o.Positions = must(positions(f.at))
	if f.template != "" {
		b, err := os.ReadFile(f.template)
		if err != nil {
			return patherr.Plain(err)
		}
		o.Template = string(b)
	}
	path := x.args[0]
	r := must(readReceipt(path))
	must(x.find())
	if v := r.VerifySignature(o.Key); !v.Verified() { // before all weights are read
		return f.say(x, path, r, v)
	}
	m := must(x.load(f.options(r)))
	defer m.Close()
	prompt, answer := r.Tokens()
	if most := m.Info().MaxContext; most > 0 && prompt+answer > most {
		return fmt.Errorf("%s: %d tokens, and the model is made for %d", path, prompt+answer, most)
	}
	p := newProgress(x.log, path)
	o.Progress = func(done, total int) { p.pieces("verifying", done, total) }
	v, err := m.Verify(x.ctx, r, o)
	p.end()
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return f.say(x, path, r, v)
}

// say writes a verdict, and returns the command's error.
func (f *verifyFlags) say(x *call, path string, r *karat.Receipt, v *karat.Verdict) (err error) {
	if f.json {
		err = x.json(v)
	} else {
		err = f.print(x, path, r, v)
	}
	if err == nil && !v.Verified() {
		err = failure{status: statusError}
	}
	return err
}

// options returns the options with which a model computes as the receipt says.
func (f *verifyFlags) options(r *karat.Receipt) karat.Options {
	prompt, answer := r.Tokens()
	o := karat.Options{Backend: karat.Backend(f.engine.backend), Threads: f.engine.threads, NoFit: f.engine.noFit,
		Context: max(2, prompt+answer), Adapters: f.engine.lora, Parallel: 1}
	o.Precision, o.KV = r.Numerics()
	return o
}

// print writes a verdict for people.
func (f *verifyFlags) print(x *call, path string, r *karat.Receipt, v *karat.Verdict) error {
	for _, found := range v.Findings {
		if err := x.printf("%s: %s: %s\n", oneLine(path), found.Kind, oneLine(found.Text)); err != nil {
			return err
		}
	}
	if !v.Verified() {
		return nil
	}
	_, answer := r.Tokens()
	how := "the same bits"
	switch {
	case !v.Bits:
		how = fmt.Sprintf("log-probabilities within %.2g", v.Distance)
	case v.Draws:
		how += " and the same choices"
	}
	signed := "without a signature"
	if v.Signed {
		signed = fmt.Sprintf("signed by %x", r.Signer())
	}
	return x.printf("%s: %d of %s, %s; %s\n", oneLine(path), v.Tokens, count(answer, "token"), how, signed)
}

func readReceipt(path string) (*karat.Receipt, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, patherr.Plain(err)
	}
	defer file.Close()
	r, err := karat.ReadReceipt(file)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return r, nil
}

// mostPositions bounds the tokens named by --at.
const mostPositions = 1 << 20

// positions reads numbers and ranges, such as 0,10-19; nil for "".
func positions(text string) (all []int, err error) {
	if text == "" {
		return nil, nil
	}
	for part := range strings.SplitSeq(text, ",") {
		first, last, ranged := strings.Cut(part, "-")
		from, err := strconv.Atoi(first)
		to := from
		if err == nil && ranged {
			to, err = strconv.Atoi(last)
		}
		if err != nil || from < 0 || to < from || to-from+len(all) >= mostPositions {
			return nil, usagef("--at %s: want numbers of tokens from 0, and ranges, as 0,10-19", oneLine(text))
		}
		for i := from; i <= to; i++ {
			all = append(all, i)
		}
	}
	return all, nil
}
