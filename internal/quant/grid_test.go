package quant

import (
	"crypto/sha256"
	"encoding/hex"
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

// hardRows returns rows(4096) with importances of 0, weights below any scale, and a group of zeros.
func hardRows() []row {
	all := rows(4096)
	for i, r := range all {
		for j := range r.x {
			if i%2 == 0 && j%3 != 0 || j/512 == 3 {
				r.importance[j] = 0
			}
			if j/256 == 5 {
				r.x[j] *= 1e-9
			}
			if j/16 == 50 {
				r.x[j] = 0
			}
		}
	}
	return all
}

// encodedHashes has the SHA-256 of the blocks that ggml_quantize_chunk makes of hardRows, one after another, without and
// with importance.
var encodedHashes = map[tensor.DType][2]string{
	tensor.IQ1_S: {"",
		"02455bad66cf893fbc0c6a24691b823fe825b9a4df71334a67c2afce6c3561b4"},
	tensor.IQ1_M: {"0ed9040f6efdc0d552c2d3fb9a094dcd5f7484b9197fe7101c52c47e38e80a62",
		"b6ca829683fdf665441133a165fa74379aaaa1d1d76f1fdd74639e40f4dacb36"},
	tensor.IQ2_XXS: {"",
		"e4932887203e2d1d6238adfbf09033bd837f24d873da9d1ff5a0b24b39482d89"},
	tensor.IQ2_XS: {"",
		"a2d11b9ab2be5227ad76272f95a2dad6f753c3f211240a06c945614772deb314"},
	tensor.IQ2_S: {"e447b7135ac9f8c1a7d1262a4a48c0b512ef2143e9e9ba157dc77e359e622844",
		"4c62f1e3fa7d6901edac3769df774efd7e0a199bac83a1a0a9f40df619176dcc"},
	tensor.IQ3_XXS: {"55446989a13afd74b20299e7f34a87effa5b95f9342277a2fd844761f78e3b97",
		"8030720c39a6436e192950e07f7f6b2a74e16ebebba1a398ea1ff03145250b7c"},
	tensor.IQ3_S: {"ea5e9ab094852fbd3d0a9c0f71c3f4f5ac25679f0dec3f201802bcb0b26f103e",
		"facf94d571e6c2b21ee6d87d573a810c4ddc1576f584a40ee54ffe228fe01368"},
	tensor.TQ1_0: {"c48ebec821ea05234e7a7ac54b02c56da23f19372496f6a33afcc1a7b3fc4271",
		"c48ebec821ea05234e7a7ac54b02c56da23f19372496f6a33afcc1a7b3fc4271"},
	tensor.TQ2_0: {"ad26ea4457fca64fb58ed6dde087f50c12749949c39ba848cd6832bea58e4177",
		"ad26ea4457fca64fb58ed6dde087f50c12749949c39ba848cd6832bea58e4177"},
	tensor.NVFP4: {"335b4d8e0c0e901d818f685bb5e63e4c4e8a9a4ac077c7590fb122eaa8a27b71",
		"335b4d8e0c0e901d818f685bb5e63e4c4e8a9a4ac077c7590fb122eaa8a27b71"},
	tensor.Q1_0: {"b73dbdfdc430e3e40bcda5c90d1dae7b5dee854350b7bf220e35c2e94a1ec4b9",
		"b73dbdfdc430e3e40bcda5c90d1dae7b5dee854350b7bf220e35c2e94a1ec4b9"},
	tensor.Q2_0: {"c3eecf91aaa72e48c7877d1960ffb4272e6d3e567483390e7069889becaaeeec",
		"c3eecf91aaa72e48c7877d1960ffb4272e6d3e567483390e7069889becaaeeec"},
}

// TestEncodedBits compares the search for grids with ggml's quantizers.
func TestEncodedBits(t *testing.T) {
	for d, want := range encodedHashes {
		for weighed, want := range want {
			if (want == "") != (weighed == 0 && needsImportance(d)) {
				t.Errorf("%v: no hash", d)
			}
			sum := sha256.New()
			for _, r := range hardRows() {
				if weighed == 0 {
					r.importance = nil
				}
				got := make([]byte, d.RowBytes(4096))
				if err := Quantize(d, got, r.x, 4096, r.importance); (err != nil) != (want == "") {
					t.Error(err)
				}
				sum.Write(got)
			}
			if got := hex.EncodeToString(sum.Sum(nil)); want != "" && got != want {
				t.Errorf("%v, importance %v: SHA-256 %s, ggml's %s", d, weighed == 1, got, want)
			}
		}
	}
}
