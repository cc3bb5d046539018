#!/bin/sh
# What cost DOPPLER weeks with Gemma 3, here all at once: a probe that reads float16 as float32, a chat template around a raw
# prompt, rows of quantized matrices read at wrong offsets, and a norm left out because of a missing flag.
# Run it in a clone, after "go run testdata/unpack.go". KARAT names another karat.
karat=${KARAT:-go run ./cmd/karat} model=testdata/models/tiny-gemma3 dir=$(mktemp -d)
trap 'rm -r "$dir"' EXIT
echo '[{"text": "Hello"}, {"text": "The color of the sky is"}]' >"$dir/prompts.json"
$karat lab record $model --prompts "$dir/prompts.json" --taps all --precision f64 -o "$dir/dump.safetensors" \
	--inject 'input_template; probe_dtype; weight_layout:attn_q+attn_k+attn_v@all; norm_missing:post_ffw_norm@all'
$karat lab diagnose $model "$dir/dump.safetensors"
