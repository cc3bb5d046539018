package quant

import (
	"testing"

	"github.com/karat-run/karat/internal/tensor"
)

// hashes has the SHA-256 of the weights that ggml's dequantize_row functions make of someBlocks: by each
// type, ggml's number, the byte and the bit of a block cleared so that its scale is finite, and the hash.
var hashes = []struct {
	d    tensor.DType
	seed uint64
	at   int
	bit  byte
	hash string
}{
	{tensor.IQ2_XXS, 16, 1, 4, "f712be8832d24830813ed85c05fb8ac741501cd92a92376ad175edd98b72b4f8"},
	{tensor.IQ2_XS, 17, 1, 4, "c278d8310c61aac6b582b2cf1bf9a288b136e4c34dad3af4d537629ac17af43b"},
	{tensor.IQ3_XXS, 18, 1, 4, "73f39d56355b9cda18d4793a7a964caa08c437a841bd0c4e6b7af02372ca77ee"},
	{tensor.IQ1_S, 19, 1, 4, "a3a13c4253ece21021e539e24397c43998b77c557d2c91d70b4bedc7803b5a38"},
	{tensor.IQ3_S, 21, 1, 4, "ccf280be05347263fddf8398a5b689e6bdae39c7b1eff7478e320c1417ea7053"},
	{tensor.IQ2_S, 22, 1, 4, "e6471a0fcaedf307b6d060e23397e8b10792bc3ca62cad21ad3f38d2e8bf9935"},
	{tensor.IQ1_M, 29, 53, 64, "b6924487c877d1e6e5f75dab41d4f92587a663380461a2261ab3b34b588b9192"},
	{tensor.TQ1_0, 34, 53, 4, "2dc201e6f4228636932daebf58e63eeaf8be062e65c6256b1a65619548865fb6"},
	{tensor.TQ2_0, 35, 65, 4, "05caf9309bdc6e2063f3c7ba536b8e05c68fff39b344bdab1c5b3960f024a509"},
	{tensor.NVFP4, 40, 0, 0, "4592297e99f4f51d2a7fb3ee55b6f43aec129fb4a4a5e336962954ee491d2f1e"},
	{tensor.Q1_0, 41, 1, 4, "2fb3f5b3d5808befd37e2cbfa7ef6f9a6255a27f64b833efc20006790924d3de"},
	{tensor.Q2_0, 42, 1, 4, "f2e9fe28818cf29d05a9c45297b9cae393f0eb3d6ae538a16ee4beda3db9406f"},
}

// someBlocks returns blocks of so many bytes: 256 of a byte each, 4096 whose 16-bit words count up, and 4096 of the low
// bytes of SplitMix64's numbers. In all a bit of the byte at is cleared.
func someBlocks(size int, seed uint64, at int, bit byte) (blocks []byte) {
	word := 0
	for i := range 256 + 2*4096 {
		b := make([]byte, size)
		for j := range b {
			switch {
			case i < 256:
				b[j] = byte(i)
			case i < 256+4096 && j%2 == 0:
				b[j], b[j+1] = byte(word), byte(word>>8)
				word++
			case i >= 256+4096:
				seed += 0x9e3779b97f4a7c15
				z := (seed ^ seed>>30) * 0xbf58476d1ce4e5b9
				z = (z ^ z>>27) * 0x94d049bb133111eb
				b[j] = byte(z ^ z>>31)
			}
		}
		b[at] &^= bit
		blocks = append(blocks, b...)
	}
	return blocks
}

// TestDequantizeBits compares every code, scale and sign with ggml's dequantization.
func TestDequantizeBits(t *testing.T) {
	for _, c := range hashes {
		if got := hash(dequantized(t, c.d, someBlocks(c.d.BlockBytes(), c.seed, c.at, c.bit))); got != c.hash {
			t.Errorf("%v: SHA-256 %s, ggml's %s", c.d, got, c.hash)
		}
	}
}
