package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

// Target is a server.
type Target struct {
	URL    string // as http://127.0.0.1:8080, without /v1
	Model  string // as requests name it
	Key    string // "" needs none
	Client *http.Client
}

// Most bytes that a server may send as one line of a stream, and as another answer.
const (
	maxLine   = 1 << 20
	maxAnswer = 4 << 20
)

// Sample is what a client saw of one request. Times are seconds.
type Sample struct {
	TTFT   float64   `json:"ttft_s"` // from the request to the first piece with text
	ITL    []float64 `json:"itl_s"`  // between two pieces with text
	E2E    float64   `json:"e2e_s"`  // from the request to the last piece with text
	Prompt int       `json:"prompt_tokens"`
	Cached int       `json:"cached_tokens"`
	Answer int       `json:"completion_tokens"`
	Hash   string    `json:"hash,omitempty"` // of the answer's text, and why it ended
	Left   bool      `json:"aborted,omitempty"`
	Error  string    `json:"error,omitempty"`
}

// complete reports whether the whole answer is there.
func (s *Sample) complete() bool { return !s.Left && s.Error == "" }

// piece is what Karat and others send as one event.
type piece struct {
	Choices []struct {
		Text  string `json:"text"`
		Delta struct {
			Content   string `json:"content"`
			Reasoning string `json:"reasoning_content"`
		} `json:"delta"`
		Finish string `json:"finish_reason"`
	} `json:"choices"`
	Usage *struct {
		Prompt  int `json:"prompt_tokens"`
		Answer  int `json:"completion_tokens"`
		Details struct {
			Cached int `json:"cached_tokens"`
		} `json:"prompt_tokens_details"`
	} `json:"usage"`
	Error json.RawMessage `json:"error"`
}

// body is r as JSON.
func (t *Target) body(w *Workload, r Request) (path string, body []byte) {
	m := map[string]any{"model": t.Model, "max_tokens": r.Answer, "temperature": w.Temperature, "seed": r.Seed,
		"stream": true, "stream_options": map[string]any{"include_usage": true}}
	path = "/v1/completions"
	if w.Chat {
		path = "/v1/chat/completions"
		m["messages"] = []any{map[string]any{"role": "user", "content": r.Prompt}}
	} else {
		m["prompt"] = r.Prompt
	}
	body, _ = json.Marshal(m) // of strings and numbers
	return path, body
}

// post sends a request. The answer's body is to be closed.
func (t *Target) post(ctx context.Context, path string, body io.Reader, size int) (*http.Response, error) {
	q, err := http.NewRequestWithContext(ctx, http.MethodPost, t.URL+path, body)
	if err != nil {
		return nil, err
	}
	q.ContentLength = int64(size)
	q.Header.Set("Content-Type", "application/json")
	// not sent: it lets the client send again what meets a connection that the server just closed
	q.Header["Idempotency-Key"] = nil
	return t.do(q)
}

func (t *Target) do(q *http.Request) (*http.Response, error) {
	if t.Key != "" {
		q.Header.Set("Authorization", "Bearer "+t.Key)
	}
	a, err := t.Client.Do(q)
	if err != nil {
		return nil, err
	}
	if a.StatusCode != http.StatusOK {
		defer a.Body.Close()
		text, _ := io.ReadAll(io.LimitReader(a.Body, 500)) // the status says enough without it
		return nil, fmt.Errorf("%s %s: %s: %s", q.Method, q.URL.Path, a.Status,
			strings.Join(strings.Fields(string(text)), " "))
	}
	return a, nil
}

// get reads an answer that is not streamed.
func (t *Target) get(ctx context.Context, path string) ([]byte, error) {
	q, err := http.NewRequestWithContext(ctx, http.MethodGet, t.URL+path, nil)
	if err != nil {
		return nil, err
	}
	a, err := t.do(q)
	if err != nil {
		return nil, err
	}
	defer a.Body.Close()
	b, err := io.ReadAll(io.LimitReader(a.Body, maxAnswer+1))
	if err == nil && len(b) > maxAnswer {
		err = fmt.Errorf("GET %s: more than %d bytes", path, maxAnswer)
	}
	return b, err
}

// Find asks for the name of the server's first model, unless t has one.
func (t *Target) Find(ctx context.Context) error {
	if t.Model != "" {
		return nil
	}
	b, err := t.get(ctx, "/v1/models")
	if err != nil {
		return err
	}
	var list struct {
		Data []struct {
			ID string `json:"id"`
		} `json:"data"`
	}
	if err := json.Unmarshal(b, &list); err != nil {
		return fmt.Errorf("%s/v1/models: %w", t.URL, err)
	}
	if len(list.Data) == 0 {
		return fmt.Errorf("%s/v1/models: the server has no model", t.URL)
	}
	t.Model = list.Data[0].ID
	return nil
}

// ask sends r and reads the answer. After each piece with text it calls pause, if there is one.
func (t *Target) ask(ctx context.Context, w *Workload, r Request, pause func()) (s Sample) {
	ctx, leave := context.WithCancel(ctx)
	defer leave()
	path, body := t.body(w, r)
	start := time.Now()
	a, err := t.post(ctx, path, bytes.NewReader(body), len(body))
	if err != nil {
		return Sample{Error: err.Error()}
	}
	defer a.Body.Close()
	err = t.read(a.Body, start, &s, func(pieces int) bool {
		if pause != nil {
			pause()
		}
		return r.Leave == 0 || pieces < r.Leave
	})
	if err != nil {
		s.Error = err.Error()
	}
	return s
}

// read reads a stream until its end, or until more says to leave.
func (t *Target) read(from io.Reader, start time.Time, s *Sample, more func(pieces int) bool) error {
	hash, ended, counted, pieces := sha256.New(), false, false, 0
	last := start
	err := events(from, func(data []byte) (bool, error) {
		if string(data) == "[DONE]" {
			ended = true
			return false, nil
		}
		var p piece
		if err := json.Unmarshal(data, &p); err != nil {
			return false, fmt.Errorf("an event is no JSON: %w", err)
		}
		if len(p.Error) > 0 && string(p.Error) != "null" {
			return false, fmt.Errorf("the server ended the answer: %.300s", p.Error)
		}
		if u := p.Usage; u != nil {
			counted, s.Prompt, s.Answer, s.Cached = true, u.Prompt, u.Answer, u.Details.Cached
		}
		text := ""
		for _, c := range p.Choices {
			text += c.Delta.Reasoning + c.Delta.Content + c.Text
			fmt.Fprintf(hash, "%s%s%s", c.Delta.Reasoning, c.Delta.Content, c.Text)
			if c.Finish != "" {
				fmt.Fprintf(hash, "\x00%s", c.Finish)
			}
		}
		if text == "" { // the role, why it ended, or usage
			return true, nil
		}
		now := time.Now()
		if pieces++; pieces == 1 {
			s.TTFT = now.Sub(start).Seconds()
		} else {
			s.ITL = append(s.ITL, now.Sub(last).Seconds())
		}
		last = now
		s.Left = !more(pieces)
		return !s.Left, nil
	})
	s.E2E = last.Sub(start).Seconds()
	switch {
	case err != nil || s.Left:
		return err
	case !ended:
		return errors.New("the answer ends without [DONE]")
	case !counted:
		return errors.New("the answer has no usage")
	}
	if pieces == 0 { // tokens without text
		s.E2E = time.Since(start).Seconds()
		s.TTFT = s.E2E
	}
	s.Hash = hex.EncodeToString(hash.Sum(nil)[:8])
	return nil
}

// events calls each for the data of each event of a stream, until it returns false.
func events(from io.Reader, each func(data []byte) (more bool, err error)) error {
	lines := bufio.NewScanner(from)
	lines.Buffer(make([]byte, 0, 4096), maxLine)
	for lines.Scan() {
		data, ok := bytes.CutPrefix(lines.Bytes(), []byte("data:"))
		if !ok {
			continue // a comment, or the blank line after an event
		}
		if more, err := each(bytes.TrimPrefix(data, []byte(" "))); err != nil || !more {
			return err
		}
	}
	return lines.Err()
}
