package tokenizer

func nfc(s string) string { return s }
