package settings

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/karat-run/karat/internal/jsonerr"
)

// Generation is the publisher's recommendation. The zero value recommends nothing.
type Generation struct {
	Sample      bool    `json:"do_sample"`
	Temperature float64 `json:"temperature"`
	TopK        int     `json:"top_k"`
	TopP        float64 `json:"top_p"`
	MinP        float64 `json:"min_p"`
	Repeat      float64 `json:"repetition_penalty"`
	End         IDs     `json:"eos_token_id"`    // ids that end a turn
	Suppress    IDs     `json:"suppress_tokens"` // ids never to be generated
}

// UnmarshalJSON takes a whole number in any spelling: 50.0 is 50.
func (g *Generation) UnmarshalJSON(b []byte) error {
	type plain Generation
	x := struct {
		*plain
		TopK *float64 `json:"top_k"`
	}{plain: (*plain)(g)}
	if err := json.Unmarshal(b, &x); err != nil {
		return jsonerr.Plain(err, "plain.")
	}
	if k := x.TopK; k != nil {
		if *k != float64(int32(*k)) {
			return fmt.Errorf("top_k: %v, want an integer of 32 bits", *k)
		}
		g.TopK = int(*k)
	}
	return nil
}

// IDs is a list of ids, in JSON also a single id.
type IDs []int

// UnmarshalJSON implements json.Unmarshaler. An id below 0 stands for none.
func (d *IDs) UnmarshalJSON(b []byte) error {
	var one *float64
	var list []float64
	if json.Unmarshal(b, &list) != nil {
		if json.Unmarshal(b, &one) != nil {
			return errors.New("ids of tokens: want an integer, or a list of them")
		}
		list = []float64{*one} // null is a list
	}
	*d = nil
	for _, id := range list {
		if id != float64(int32(id)) {
			return fmt.Errorf("ids of tokens: %v, want an integer, or a list of them", id)
		}
		if id >= 0 {
			*d = append(*d, int(id))
		}
	}
	return nil
}
