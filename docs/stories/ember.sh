#!/bin/sh
# Ember's Gemma 4, as it was when its logits stopped at a cosine of 0.87 and "numerical sensitivity" was blamed. Five bugs
# were there, found one by one later: scores scaled by 1/sqrt(head size), no norm of the values, rope factors that multiply
# instead of dividing (1e30 among them), keys and values of another layer, and a matrix read as its transpose.
# Run it in a clone, after "go run testdata/unpack.go". KARAT names another karat.
karat=${KARAT:-go run ./cmd/karat} model=testdata/models/tiny-gemma4 dir=$(mktemp -d)
trap 'rm -r "$dir"' EXIT
cat >"$dir/prompts.json" <<'END'
[{"text": "Hello"}, {"text": "The color of the sky is"},
 {"text": "func (r *Reader) Reset() { r.err = nil; r.n = 0 }\n\nfunc (r *Reader) Len() int { return r.n }"}]
END
$karat lab record $model --prompts "$dir/prompts.json" --taps all --decode-last 2 --precision f64 -o "$dir/dump.safetensors" \
	--inject 'attention_scale@all; v_norm_missing@all; rope_factors=multiplied@all; kv_share_source@shared; weight_transposed:per_layer_model_proj'
$karat lab diagnose $model "$dir/dump.safetensors"
