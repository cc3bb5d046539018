go test fuzz v1
string("model.layers.0.self_attn.q_norm.out")
string("blk.1.attn_q_rope")
byte('\x03')
byte('\x04')
byte('`')
byte('\x03')
