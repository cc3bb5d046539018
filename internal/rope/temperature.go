package rope

// Temperature is 1 + beta·log(1 + floor((pos + shift)/every)), the factor of queries
// that long contexts need, the same on every machine. It expects every ≥ 1.
// (transformers' modeling_llama4.py, with shift 1, and modeling_ministral3.py, with 0;
// Nakanishi 2025, arXiv:2501.19399)
func Temperature(pos int, beta float64, every, shift int) float64 {
	return 1 + float64(beta*ln(float64(1+(pos+shift)/every)))
}
