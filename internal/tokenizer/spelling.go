package tokenizer

import "strings"

// byteRunes is GPT-2's alphabet: the character that spells each byte in a byte-level vocabulary. Printable Latin-1
// characters spell themselves, the others take U+0100 and up in order (bytes_to_unicode in GPT-2's encoder.py).
var byteRunes = func() (runes [256]rune) {
	next := rune(0x100)
	for b := range runes {
		if b >= '!' && b <= '~' || b >= 0xA1 && b != 0xAD {
			runes[b] = rune(b)
		} else {
			runes[b] = next
			next++
		}
	}
	return runes
}()

// runeBytes is the inverse of byteRunes, -1 for other characters.
var runeBytes = func() (bytes [0x144]int16) {
	for i := range bytes {
		bytes[i] = -1
	}
	for b, r := range byteRunes {
		bytes[r] = int16(b)
	}
	return bytes
}()

// unspell returns the bytes that a token of a byte-level vocabulary spells.
func unspell(token string) (string, bool) {
	plain := true
	for i := range len(token) {
		plain = plain && token[i] >= '!' && token[i] <= '~'
	}
	if plain {
		return token, true
	}
	var b strings.Builder
	b.Grow(len(token))
	for _, r := range token {
		if r >= rune(len(runeBytes)) || runeBytes[r] < 0 {
			return "", false
		}
		b.WriteByte(byte(runeBytes[r]))
	}
	return b.String(), true
}
