// The program around the kernel: model INPUT OUTPUT, both raw. See tests/fitness/test_blackwell_model.py.
#pragma once

int main(int, char** arguments) {
    int32_t header[9];  // batch, heads, kv_heads, seqlen_q, seqlen_k, causal, laziness, seed, fault
    FILE* file = fopen(arguments[1], "rb");
    if (!file || fread(header, 4, 9, file) != 9) return 2;
    const int batch = header[0], heads = header[1], kv_heads = header[2], length_q = header[3], length_k = header[4];
    const size_t q_size = size_t(batch) * length_q * heads * HEAD_DIM;
    const size_t k_size = size_t(batch) * length_k * kv_heads * HEAD_DIM;
    std::vector<uint16_t> q(q_size), k(k_size), v(k_size), o(q_size, 0xffff);
    std::vector<float> lse(size_t(batch) * heads * length_q, NAN);
    if (fread(q.data(), 2, q_size, file) != q_size || fread(k.data(), 2, k_size, file) != k_size ||
        fread(v.data(), 2, k_size, file) != k_size)
        return 2;
    fclose(file);
    laziness = header[6];
    chance.seed(header[7]);
    fault = header[8];
    AttentionParams params = {};
    params.lse = lse.data();
    params.batch = batch, params.heads = heads, params.kv_heads = kv_heads;
    params.seqlen_q = length_q, params.seqlen_k = length_k, params.head_dim = HEAD_DIM, params.causal = header[5];
    params.softmax_scale = 1.0f / sqrtf(HEAD_DIM);
    TensorMap maps[4] = {};
    const Map layouts[4] = {{q.data(), HEAD_DIM, heads, length_q, batch, 128},
                            {k.data(), HEAD_DIM, kv_heads, length_k, batch, BLOCK_N},
                            {v.data(), HEAD_DIM, kv_heads, length_k, batch, BLOCK_N},
                            {o.data(), HEAD_DIM, heads, length_q, batch, 128}};
    for (int i = 0; i < 4; ++i) memcpy(&maps[i], &layouts[i], sizeof layouts[i]);
    body = [&] { attention(params, maps[0], maps[1], maps[2], maps[3]); };
    gridDim = {unsigned(length_q + 255) / 256, unsigned(heads), unsigned(batch)};
    for (blockIdx.z = 0; blockIdx.z < gridDim.z; ++blockIdx.z)
        for (blockIdx.y = 0; blockIdx.y < gridDim.y; ++blockIdx.y)
            for (blockIdx.x = 0; blockIdx.x < gridDim.x; ++blockIdx.x) run_block();
    file = fopen(arguments[2], "wb");
    if (!file || fwrite(o.data(), 2, q_size, file) != q_size) return 2;
    if (fwrite(lse.data(), 4, lse.size(), file) != lse.size()) return 2;
    return fclose(file);
}
