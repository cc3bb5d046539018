package server

import (
	"encoding/json"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/karat-run/karat"
)

// modelObject is a model in a list of OpenAI's API. Facts of loaded models are left out for the others.
type modelObject struct {
	ID          string   `json:"id"`
	Root        string   `json:"root,omitempty"`   // of an alias, the model's name
	Parent      string   `json:"parent,omitempty"` // of an adapter, likewise
	Object      string   `json:"object"`
	Created     int64    `json:"created"`
	OwnedBy     string   `json:"owned_by"`
	Aliases     []string `json:"aliases,omitempty"`
	Loaded      bool     `json:"loaded"`
	MaxModelLen int      `json:"max_model_len,omitempty"`
	Fingerprint string   `json:"system_fingerprint,omitempty"`

	Modalities map[string]bool `json:"modalities,omitempty"` // as llama-server's /props
}

// modelObject returns a model by a name of it.
func (x *exchange) modelObject(m state, name string) modelObject {
	o := modelObject{ID: name, Object: "model", Created: x.s.since, OwnedBy: "karat", Aliases: m.Aliases}
	if name != m.Name {
		o.Root, o.Aliases = m.Name, nil
	}
	if !m.Changed.IsZero() {
		o.Created = m.Changed.Unix()
	}
	if m.now != nil {
		o.Loaded, o.MaxModelLen, o.Fingerprint = true, m.now.room, m.now.print
		o.Modalities = map[string]bool{"vision": m.now.model.Sees()}
	}
	return o
}

// tunedObject returns a model with an adapter.
func tunedObject(x *exchange, m state, t *tuned) modelObject {
	o := x.modelObject(m, m.Name)
	o.ID, o.Parent, o.Aliases = t.name, m.Name, nil
	if o.Fingerprint != "" {
		o.Fingerprint += "_" + t.print
	}
	return o
}

func listModels(x *exchange) any {
	list := []modelObject{}
	for _, m := range x.states() {
		for _, name := range append([]string{m.Name}, m.Aliases...) {
			list = append(list, x.modelObject(m, name))
		}
		for _, t := range x.s.pool.adaptersOf(m.entry) {
			list = append(list, tunedObject(x, m, t))
		}
	}
	if x.isAnthropic() {
		return pageModels(x, list)
	}
	return map[string]any{"object": "list", "data": list}
}

func showModel(x *exchange) any {
	id := strings.TrimSuffix(x.r.PathValue("id"), "/")
	e, t := x.s.pool.find(id), x.s.pool.borrow(id)
	if t != nil {
		defer x.s.pool.repay(t)
		e = t.of
	}
	for _, m := range x.states() {
		if m.entry == e {
			o := x.modelObject(m, id)
			if t != nil {
				o = tunedObject(x, m, t)
			}
			if x.isAnthropic() {
				return o.anthropic()
			}
			return o
		}
	}
	return noModel(id)
}

// showProps answers llama-server's GET /props, of the query's model or the first one.
func showProps(x *exchange) any {
	query := map[string]string{}
	if name := x.r.URL.Query().Get("model"); name != "" {
		query["model"] = name
	}
	body, _ := json.Marshal(query) // a string has JSON
	m := x.readOptionalModel(parse(body, &x.hints))
	return map[string]any{"default_generation_settings": map[string]int{"n_ctx": m.room}, "total_slots": x.s.o.Requests,
		"model_alias": m.name, "chat_template": m.info.Template, "build_info": "karat " + karat.Version(),
		"modalities": map[string]bool{"vision": m.model.Sees(), "audio": false}}
}

// anthropicModel is a model in a list of Anthropic's API.
type anthropicModel struct {
	Type     string `json:"type"`
	ID       string `json:"id"`
	Name     string `json:"display_name"`
	Created  string `json:"created_at"`
	MaxInput int    `json:"max_input_tokens,omitempty"` // of a loaded model
	MaxAll   int    `json:"max_tokens,omitempty"`

	Modalities map[string]bool `json:"modalities,omitempty"`
}

func (o modelObject) anthropic() anthropicModel {
	return anthropicModel{Type: "model", ID: o.ID, Name: o.ID,
		Created: time.Unix(o.Created, 0).UTC().Format(time.RFC3339), MaxInput: o.MaxModelLen, MaxAll: o.MaxModelLen,
		Modalities: o.Modalities}
}

// pageModels answers a page of models: limit of them, after after_id or before before_id.
func pageModels(x *exchange, all []modelObject) any {
	first, end := modelPage(x.r.URL.Query(), len(all), func(id string) int {
		return slices.IndexFunc(all, func(o modelObject) bool { return o.ID == id })
	})
	list := []anthropicModel{}
	for _, o := range all[first:end] {
		list = append(list, o.anthropic())
	}
	more := end < len(all)
	if x.r.URL.Query().Get("before_id") != "" {
		more = first > 0
	}
	answer := map[string]any{"data": list, "has_more": more, "first_id": nil, "last_id": nil}
	if len(list) > 0 {
		answer["first_id"], answer["last_id"] = list[0].ID, list[len(list)-1].ID
	}
	return answer
}

// modelPage returns the first index and the end of a query's page in a list of n, with find for an id's index.
func modelPage(q url.Values, n int, find func(id string) int) (first, end int) {
	const usual, most = 20, 1000
	limit := usual
	if text := q.Get("limit"); text != "" {
		var err error
		if limit, err = strconv.Atoi(text); err != nil || limit < 1 || limit > most {
			throw(bad("limit", "limit: %.32q, want a number from 1 to %d", text, most))
		}
	}
	after, before := q.Get("after_id"), q.Get("before_id")
	if after != "" && before != "" {
		throw(bad("before_id", "before_id: it and after_id exclude each other"))
	}
	at := find(after + before)
	switch {
	case after+before != "" && at < 0:
		throw(bad("after_id", "There is no model %.64q: give the last_id or first_id of a page", after+before))
	case before != "":
		return max(0, at-limit), at
	case after != "":
		first = at + 1
	}
	return first, min(first+limit, n)
}
