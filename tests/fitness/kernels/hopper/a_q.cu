/*evo
contract = 1
name = "persistent blocks, two query buffers"
targets = ["sm_90a"]
supports = "(head_dim == 64 or head_dim == 128) and bf16 == 1 and seqlen_q == seqlen_k"

[defines]
HD = "head_dim"
CAUSAL = "causal"

[[tensor_map]]
tensor = "q"
box = ["64", "1", "128", "1"]
swizzle = "128"

[[tensor_map]]
tensor = "k"
box = ["64", "1", "128", "1"]
swizzle = "128"

[[tensor_map]]
tensor = "v"
box = ["64", "1", "128", "1"]
swizzle = "128"

[[tensor_map]]
tensor = "o"
box = ["64", "1", "64", "1"]
swizzle = "128"

[[launch]]
kernel = "fwd"
grid = ["max(1, sm_count // batch)", "1", "batch"]
block = ["384"]
shared_bytes = "3 * 128 * HD * 2 + 128 * 1024 + 1024"
*/
// Persistent: floor(sms/batch)*batch blocks, one per multiprocessor; gridDim.z only carries the batch size.
// smem: Q twice, O staging once, K and V rings of ST*HD = 256 columns each (2 stages at HD 128, 4 at HD 64).

#include "attention.cuh"
// HD (64 or 128) and CAUSAL (0 or 1) come as -D flags; the rest is yours to set.
constexpr int BN=128, NWG=2, BM=64*NWG, ST=256/HD, PP=1;
constexpr int SL=HD/64;               // 64-column slabs
constexpr int QB=BM*HD*2, KB=BN*HD*2;

__device__ __forceinline__ uint32_t sm(const void* p){ return (uint32_t)__cvta_generic_to_shared(p); }
__device__ __forceinline__ void bar_init(uint32_t b,int n){ asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;"::"r"(b),"r"(n)); }
__device__ __forceinline__ void bar_expect(uint32_t b,int n){ asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;"::"r"(b),"r"(n):"memory"); }
__device__ __forceinline__ void bar_arrive(uint32_t b){ asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];"::"r"(b):"memory"); }
__device__ __forceinline__ void bar_wait(uint32_t b,int ph){ asm volatile("{ .reg .pred P; W: mbarrier.try_wait.parity.shared::cta.b64 P, [%0], %1; @P bra D; bra W; D: }"::"r"(b),"r"(ph):"memory"); }
__device__ __forceinline__ void tma4(uint32_t dst,const TensorMap* m,uint32_t bar,int c0,int c1,int c2,int c3){
  asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3,%4,%5,%6}], [%2];"::"r"(dst),"l"(m),"r"(bar),"r"(c0),"r"(c1),"r"(c2),"r"(c3):"memory"); }
__device__ __forceinline__ void tma4s(uint32_t src,const TensorMap* m,int c0,int c1,int c2,int c3){
  asm volatile("cp.async.bulk.tensor.4d.global.shared::cta.bulk_group [%1, {%2,%3,%4,%5}], [%0];"::"r"(src),"l"(m),"r"(c0),"r"(c1),"r"(c2),"r"(c3):"memory"); }
// K-major, 128B swizzle: SBO = 1024 B
__device__ __forceinline__ uint64_t dk(uint32_t a){ return (uint64_t)((a&0x3FFFF)>>4)|(1ull<<16)|(64ull<<32)|(1ull<<62); }
// MN-major, 128B swizzle: LBO = slab stride, SBO = 1024 B
__device__ __forceinline__ uint64_t dmn(uint32_t a){ return (uint64_t)((a&0x3FFFF)>>4)|((uint64_t)((BN*128)>>4)<<16)|(64ull<<32)|(1ull<<62); }
__device__ __forceinline__ float ex2(float x){ float y; asm("ex2.approx.ftz.f32 %0, %1;":"=f"(y):"f"(x)); return y; }
__device__ __forceinline__ float rcp(float x){ float y; asm("rcp.approx.ftz.f32 %0, %1;":"=f"(y):"f"(x)); return y; }
__device__ __forceinline__ uint32_t pk(float a,float b){ uint32_t r; asm("cvt.rn.bf16x2.f32 %0, %1, %2;":"=r"(r):"f"(b),"f"(a)); return r; }
__device__ __forceinline__ void wfence(){ asm volatile("wgmma.fence.sync.aligned;":::"memory"); }
__device__ __forceinline__ void wcommit(){ asm volatile("wgmma.commit_group.sync.aligned;":::"memory"); }
template<int N> __device__ __forceinline__ void wwait(){ asm volatile("wgmma.wait_group.sync.aligned %0;"::"n"(N):"memory"); }
__device__ __forceinline__ void nb_sync(int id,int n){ asm volatile("bar.sync %0, %1;"::"r"(id),"r"(n):"memory"); }
__device__ __forceinline__ void nb_arrive(int id,int n){ asm volatile("bar.arrive %0, %1;"::"r"(id),"r"(n):"memory"); }

__device__ __forceinline__ void mma_qk(float (&d)[64], uint64_t a, uint64_t b, int scaleD) {
  asm volatile("{ .reg .pred p; setp.ne.b32 p, %66, 0; wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31,%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63}, %64, %65, p, 1, 1, 0, 0; }"
   : "+f"(d[0]),"+f"(d[1]),"+f"(d[2]),"+f"(d[3]),"+f"(d[4]),"+f"(d[5]),"+f"(d[6]),"+f"(d[7]),"+f"(d[8]),"+f"(d[9]),"+f"(d[10]),"+f"(d[11]),"+f"(d[12]),"+f"(d[13]),"+f"(d[14]),"+f"(d[15]),"+f"(d[16]),"+f"(d[17]),"+f"(d[18]),"+f"(d[19]),"+f"(d[20]),"+f"(d[21]),"+f"(d[22]),"+f"(d[23]),"+f"(d[24]),"+f"(d[25]),"+f"(d[26]),"+f"(d[27]),"+f"(d[28]),"+f"(d[29]),"+f"(d[30]),"+f"(d[31]),"+f"(d[32]),"+f"(d[33]),"+f"(d[34]),"+f"(d[35]),"+f"(d[36]),"+f"(d[37]),"+f"(d[38]),"+f"(d[39]),"+f"(d[40]),"+f"(d[41]),"+f"(d[42]),"+f"(d[43]),"+f"(d[44]),"+f"(d[45]),"+f"(d[46]),"+f"(d[47]),"+f"(d[48]),"+f"(d[49]),"+f"(d[50]),"+f"(d[51]),"+f"(d[52]),"+f"(d[53]),"+f"(d[54]),"+f"(d[55]),"+f"(d[56]),"+f"(d[57]),"+f"(d[58]),"+f"(d[59]),"+f"(d[60]),"+f"(d[61]),"+f"(d[62]),"+f"(d[63]) : "l"(a), "l"(b), "r"(scaleD));
}
__device__ __forceinline__ void mma_pv(float (&d)[32], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint64_t b, int scaleD) {
  asm volatile("{ .reg .pred p; setp.ne.b32 p, %37, 0; wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31}, {%32,%33,%34,%35}, %36, p, 1, 1, 1; }"
   : "+f"(d[0]),"+f"(d[1]),"+f"(d[2]),"+f"(d[3]),"+f"(d[4]),"+f"(d[5]),"+f"(d[6]),"+f"(d[7]),"+f"(d[8]),"+f"(d[9]),"+f"(d[10]),"+f"(d[11]),"+f"(d[12]),"+f"(d[13]),"+f"(d[14]),"+f"(d[15]),"+f"(d[16]),"+f"(d[17]),"+f"(d[18]),"+f"(d[19]),"+f"(d[20]),"+f"(d[21]),"+f"(d[22]),"+f"(d[23]),"+f"(d[24]),"+f"(d[25]),"+f"(d[26]),"+f"(d[27]),"+f"(d[28]),"+f"(d[29]),"+f"(d[30]),"+f"(d[31]) : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "l"(b), "r"(scaleD));
}
__device__ __forceinline__ void mma_pv(float (&d)[64], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint64_t b, int scaleD) {
  asm volatile("{ .reg .pred p; setp.ne.b32 p, %69, 0; wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31,%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63}, {%64,%65,%66,%67}, %68, p, 1, 1, 1; }"
   : "+f"(d[0]),"+f"(d[1]),"+f"(d[2]),"+f"(d[3]),"+f"(d[4]),"+f"(d[5]),"+f"(d[6]),"+f"(d[7]),"+f"(d[8]),"+f"(d[9]),"+f"(d[10]),"+f"(d[11]),"+f"(d[12]),"+f"(d[13]),"+f"(d[14]),"+f"(d[15]),"+f"(d[16]),"+f"(d[17]),"+f"(d[18]),"+f"(d[19]),"+f"(d[20]),"+f"(d[21]),"+f"(d[22]),"+f"(d[23]),"+f"(d[24]),"+f"(d[25]),"+f"(d[26]),"+f"(d[27]),"+f"(d[28]),"+f"(d[29]),"+f"(d[30]),"+f"(d[31]),"+f"(d[32]),"+f"(d[33]),"+f"(d[34]),"+f"(d[35]),"+f"(d[36]),"+f"(d[37]),"+f"(d[38]),"+f"(d[39]),"+f"(d[40]),"+f"(d[41]),"+f"(d[42]),"+f"(d[43]),"+f"(d[44]),"+f"(d[45]),"+f"(d[46]),"+f"(d[47]),"+f"(d[48]),"+f"(d[49]),"+f"(d[50]),"+f"(d[51]),"+f"(d[52]),"+f"(d[53]),"+f"(d[54]),"+f"(d[55]),"+f"(d[56]),"+f"(d[57]),"+f"(d[58]),"+f"(d[59]),"+f"(d[60]),"+f"(d[61]),"+f"(d[62]),"+f"(d[63]) : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "l"(b), "r"(scaleD));
}
extern "C" __global__ void __launch_bounds__(128*(NWG+1),1) fwd(const __grid_constant__ AttentionParams params,
    const __grid_constant__ TensorMap mq,const __grid_constant__ TensorMap mk,const __grid_constant__ TensorMap mv,const __grid_constant__ TensorMap mo){
  float* const lse=params.lse; const int heads=params.heads, kvh=params.kv_heads, sq=params.seqlen_q, sk=params.seqlen_k;
  const float sl2=params.softmax_scale*1.4426950408889634f;   // log2(e): exponentials are powers of two
  extern __shared__ __align__(1024) unsigned char smraw[];
  unsigned char* base=(unsigned char*)(((uint64_t)smraw+1023)&~1023ull);
  uint32_t sQ=sm(base), sO=sQ+2*QB, sK=sO+QB, sV=sK+ST*KB;
  __shared__ alignas(8) uint64_t bars[8+4*ST];
  // fQ/eQ: Q full/empty, per buffer.  rO/eO: O staging ready/empty, per consumer warpgroup.
  uint32_t fQ=sm(&bars[0]), eQ=fQ+16, rO=eQ+16, eO=rO+16, fK=eO+16, eK=fK+8*ST, fV=eK+8*ST, eV=fV+8*ST;
  const int wg=threadIdx.x>>7, tid=threadIdx.x&127;

  // ---- static tile schedule, the same arithmetic in every role ----
  const int NB=(int)(gridDim.x*gridDim.z), L=(int)(blockIdx.z*gridDim.x+blockIdx.x);
  const int nq=(sq+BM-1)/BM, HB=heads*(int)gridDim.z, T=nq*HB;
  // causal: heads go in groups of Hg, heaviest q tiles first inside a group; Hg*nq is a multiple of NB
  // in the long cases, and when nq divides NB one head at a time already balances under the snake.
  const int Hg = (!CAUSAL || NB%nq==0) ? 1 : (NB+3)/4;
  auto pos=[&](int r){ return r*NB + ((CAUSAL && (r&1)) ? NB-1-L : L); };   // snake: rounds alternate direction
  auto dec=[&](int pp,int& mb_,int& hb_){
    if(CAUSAL){ int g=pp/(Hg*nq), i=pp-g*Hg*nq; int hc=HB-g*Hg; hc=hc<Hg?hc:Hg; int q=i/hc; hb_=g*Hg+i-q*hc; mb_=nq-1-q; }
    else { hb_=pp/nq; mb_=pp-hb_*nq; }
  };
  auto ktiles=[&](int mb_){
    int n=(sk+BN-1)/BN;
    if(CAUSAL){ int lim=(mb_+1)*BM+sk-sq; int n2=(lim+BN-1)/BN; n=n2<n?n2:n; n=n<1?1:n; }
    return n;
  };

  if(threadIdx.x==0){
    for(int i=0;i<2;i++){ bar_init(fQ+8*i,1); bar_init(eQ+8*i,NWG); bar_init(rO+8*i,4); bar_init(eO+8*i,1); }
    for(int i=0;i<ST;i++){ bar_init(fK+8*i,1); bar_init(eK+8*i,NWG); bar_init(fV+8*i,1); bar_init(eV+8*i,NWG);}
    asm volatile("fence.mbarrier_init.release.cluster;");
  }
  __syncthreads();
  if(wg==0){
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;"::"n"(40));
    if(tid==0){
      // ---- loads: runs across tile boundaries, ahead of the consumers ----
      uint32_t kc=0;
      for(int t=0;;t++){
        int pp=pos(t); if(pp>=T) break;
        int mb,hb; dec(pp,mb,hb);
        int b=hb/heads, h=hb-b*heads, hk=h/(heads/kvh), qb=t&1;
        bar_wait(eQ+8*qb,((t>>1)&1)^1); bar_expect(fQ+8*qb,QB);
        #pragma unroll
        for(int s=0;s<SL;s++) tma4(sQ+qb*QB+s*BM*128,&mq,fQ+8*qb,s*64,h,mb*BM,b);
        for(int n=ktiles(mb)-1;n>=0;n--,kc++){
          uint32_t st=kc%ST; int ph=(kc/ST)&1;
          bar_wait(eK+8*st,ph^1); bar_expect(fK+8*st,KB);
          #pragma unroll
          for(int s=0;s<SL;s++) tma4(sK+st*KB+s*BN*128,&mk,fK+8*st,s*64,hk,n*BN,b);
          bar_wait(eV+8*st,ph^1); bar_expect(fV+8*st,KB);
          #pragma unroll
          for(int s=0;s<SL;s++) tma4(sV+st*KB+s*BN*128,&mv,fV+8*st,s*64,hk,n*BN,b);
        }
      }
    } else if(tid==32 || tid==64){
      // ---- stores: one thread per consumer warpgroup ----
      const int w=(tid>>5)-1;
      for(int t=0;;t++){
        int pp=pos(t); if(pp>=T) break;
        int mb,hb; dec(pp,mb,hb);
        int b=hb/heads, h=hb-b*heads;
        bar_wait(rO+8*w,t&1);
        #pragma unroll
        for(int s=0;s<SL;s++) tma4s(sO+w*64*128+s*BM*128,&mo,s*64,h,mb*BM+w*64,b);
        asm volatile("cp.async.bulk.commit_group; cp.async.bulk.wait_group.read 0;":::"memory");
        bar_arrive(eO+8*w);
      }
    }
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;"::"n"(232));
    const int w=wg-1, lane=tid&31, wp=tid>>5;
    if(pos(0)<T){
    int mb,hb,row0,mlim,nmax,t=0; uint32_t kc=0;
    auto load=[&](int pp){
      dec(pp,mb,hb); nmax=ktiles(mb); row0=mb*BM+w*64+wp*16+(lane>>2);
      mlim=sk; if(CAUSAL){ int d=mb*BM+w*64+sk-sq+1; mlim=d<mlim?d:mlim; }   // keys below mlim are live for every row of this warpgroup
    };
    float o[HD/2]; float m[2]={-INFINITY,-INFINITY}, l[2]={0,0};
    #pragma unroll
    for(int i=0;i<HD/2;i++) o[i]=0;
    const uint32_t aO=sO+w*64*128;
    uint32_t p[BN/4];
    auto qk=[&](float (&s)[BN/2],uint32_t aQ,uint32_t st){
      #pragma unroll
      for(int k=0;k<HD/16;k++) mma_qk(s, dk(aQ+(k/4)*BM*128+(k%4)*32), dk(sK+st*KB+(k/4)*BN*128+(k%4)*32), k>0);
    };
    auto pv=[&](uint32_t st){
      #pragma unroll
      for(int k=0;k<BN/16;k++) mma_pv(o,p[4*k],p[4*k+1],p[4*k+2],p[4*k+3], dmn(sV+st*KB+k*2048), 1);
    };
    auto mask=[&](float (&s)[BN/2],int n){
      #pragma unroll
      for(int r=0;r<2;r++){
        int c=sk; if(CAUSAL){ int d=row0+8*r+sk-sq+1; c=d<c?d:c; }
        c-=n*BN+(lane&3)*2;
        #pragma unroll
        for(int i=0;i<BN/8;i++){ if(8*i>=c) s[4*i+2*r]=-INFINITY; if(8*i+1>=c) s[4*i+2*r+1]=-INFINITY; }
      }
    };
    // returns alpha
    auto softmax=[&](float (&s)[BN/2],float (&al)[2]){
      #pragma unroll
      for(int r=0;r<2;r++){
        float mx=m[r];
        #pragma unroll
        for(int i=0;i<BN/8;i++){ mx=fmaxf(mx,s[4*i+2*r]); mx=fmaxf(mx,s[4*i+2*r+1]); }
        mx=fmaxf(mx,__shfl_xor_sync(0xffffffff,mx,1)); mx=fmaxf(mx,__shfl_xor_sync(0xffffffff,mx,2));
        float ms = mx==-INFINITY?0.f:mx*sl2;
        al[r]=ex2(m[r]*sl2-ms); m[r]=mx; float sum=0;
        #pragma unroll
        for(int i=0;i<BN/8;i++){ float x=ex2(s[4*i+2*r]*sl2-ms), y=ex2(s[4*i+2*r+1]*sl2-ms); s[4*i+2*r]=x; s[4*i+2*r+1]=y; sum+=x+y; }
        l[r]=l[r]*al[r]+sum;
      }
    };
    auto pack=[&](float (&s)[BN/2]){
      #pragma unroll
      for(int k=0;k<BN/16;k++){ p[4*k]=pk(s[8*k],s[8*k+1]); p[4*k+1]=pk(s[8*k+2],s[8*k+3]); p[4*k+2]=pk(s[8*k+4],s[8*k+5]); p[4*k+3]=pk(s[8*k+6],s[8*k+7]); }
    };
    auto rescale=[&](float (&al)[2]){
      #pragma unroll
      for(int i=0;i<HD/2;i++) o[i]*=al[(i>>1)&1];
    };
    // normalise o, write lse, stage O in its own smem; a thread of warpgroup 0 does the TMA store
    auto epilogue=[&](float (&me)[2],float (&le)[2],int r0,int hbe,int te){
      #pragma unroll
      for(int r=0;r<2;r++){ le[r]+=__shfl_xor_sync(0xffffffff,le[r],1); le[r]+=__shfl_xor_sync(0xffffffff,le[r],2); }
      float inv[2]={le[0]>0?rcp(le[0]):0.f, le[1]>0?rcp(le[1]):0.f};
      if((lane&3)==0){
        #pragma unroll
        for(int r=0;r<2;r++){ int rr=r0+8*r; if(rr<sq) lse[(long)hbe*sq+rr]= le[r]>0? (me[r]*sl2+log2f(le[r]))*0.69314718056f : -INFINITY; }
      }
      bar_wait(eO+8*w,(te&1)^1);          // previous tile's store has read the staging rows
      #pragma unroll
      for(int i=0;i<HD/8;i++){
        int slab=i/8, ch=i%8;
        #pragma unroll
        for(int r=0;r<2;r++){ int row=wp*16+(lane>>2)+8*r; uint32_t v=pk(o[4*i+2*r]*inv[r],o[4*i+2*r+1]*inv[r]);
          uint32_t ad=aO+slab*BM*128+row*128+((ch^(row&7))<<4)+(lane&3)*4; asm volatile("st.shared.b32 [%0], %1;"::"r"(ad),"r"(v):"memory"); } }
      asm volatile("fence.proxy.async.shared::cta;":::"memory");
      __syncwarp();
      if(lane==0) bar_arrive(rO+8*w);
    };

    load(pos(0));
    if(PP && w==1) nb_arrive(1,256);
    bar_wait(fQ,0);
    { float s[BN/2]; float al[2];          // first key tile of the block's first q tile: the only exposed prologue
      bar_wait(fK,0);
      if(PP) nb_sync(1+w,256);
      wfence(); qk(s,sQ+w*64*128,0); wcommit();
      if(PP) nb_arrive(1+(w^1),256);
      wwait<0>();
      if(tid==0){ bar_arrive(eK); if(nmax==1) bar_arrive(eQ); }
      if(nmax*BN>mlim) mask(s,nmax-1);
      softmax(s,al); pack(s);
      kc=1;
    }
    for(;;){
      const uint32_t aQ=sQ+(t&1)*QB+w*64*128;
      for(int n=nmax-2;n>=0;n--){
        uint32_t st=kc%ST, sp=(kc-1)%ST; int ph=(kc/ST)&1, pph=((kc-1)/ST)&1; float s[BN/2]; float al[2];
        bar_wait(fK+8*st,ph);
        if(PP) nb_sync(1+w,256);
        wfence(); qk(s,aQ,st); wcommit();
        bar_wait(fV+8*sp,pph);
        pv(sp); wcommit();
        if(PP) nb_arrive(1+(w^1),256);
        wwait<1>();
        if(tid==0){ bar_arrive(eK+8*st); if(n==0) bar_arrive(eQ+8*(t&1)); }
        if(CAUSAL && (n+1)*BN>mlim) mask(s,n);
        softmax(s,al);
        wwait<0>();
        if(tid==0) bar_arrive(eV+8*sp);
        rescale(al); pack(s);
        kc++;
      }
      const int pn=pos(t+1); if(pn>=T) break;
      { // tile boundary: first QK of the next q tile flies with the last PV of this one
        uint32_t st=kc%ST, sp=(kc-1)%ST; int ph=(kc/ST)&1, pph=((kc-1)/ST)&1; float s[BN/2]; float al[2];
        const int tn=t+1, r0=row0, hb0=hb;
        load(pn);
        float me[2]={m[0],m[1]}, le[2]={l[0],l[1]};
        m[0]=m[1]=-INFINITY; l[0]=l[1]=0;
        bar_wait(fQ+8*(tn&1),(tn>>1)&1);
        bar_wait(fK+8*st,ph);
        if(PP) nb_sync(1+w,256);
        wfence(); qk(s,sQ+(tn&1)*QB+w*64*128,st); wcommit();
        bar_wait(fV+8*sp,pph);
        pv(sp); wcommit();
        if(PP) nb_arrive(1+(w^1),256);
        wwait<1>();
        if(tid==0){ bar_arrive(eK+8*st); if(nmax==1) bar_arrive(eQ+8*(tn&1)); }
        if(nmax*BN>mlim) mask(s,nmax-1);
        softmax(s,al);
        wwait<0>();
        if(tid==0) bar_arrive(eV+8*sp);
        epilogue(me,le,r0,hb0,t);
        #pragma unroll
        for(int i=0;i<HD/2;i++) o[i]=0;
        pack(s);
        kc++; t=tn;
      }
    }
    { uint32_t sp=(kc-1)%ST; int pph=((kc-1)/ST)&1; bar_wait(fV+8*sp,pph);
      if(PP) nb_sync(1+w,256);
      wfence(); pv(sp); wcommit();
      if(PP && w==0) nb_arrive(1+(w^1),256);
      wwait<0>(); }
    epilogue(m,l,row0,hb,t);
    }
  }
}
