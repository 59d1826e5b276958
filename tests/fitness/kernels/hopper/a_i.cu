/*evo
contract = 1
name = "persistent blocks, tiles shared across the batch"
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
shared_bytes = "3 * 128 * HD * 2 + 1024 * 128 + 1024"
*/
// smem: 2 Q slots + 1 output slot + 256/HD stages of K and of V (2*(256/HD)*bn*HD*2 = 1024*bn bytes).
// The grid only carries the batch size in gridDim.z; the blocks share all tiles of all batch entries.

#include "attention.cuh"
// HD (64 or 128) and CAUSAL (0 or 1) come as -D flags; the rest is yours to set.
constexpr int BN=128, NWG=2, BM=64*NWG, ST=256/HD;
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
__device__ __forceinline__ void bulk_read0(){ asm volatile("cp.async.bulk.wait_group.read 0;":::"memory"); }
// K-major, 128B swizzle: SBO = 1024 B
__device__ __forceinline__ uint64_t dk(uint32_t a){ return (uint64_t)((a&0x3FFFF)>>4)|(1ull<<16)|(64ull<<32)|(1ull<<62); }
// MN-major, 128B swizzle: LBO = slab stride, SBO = 1024 B
__device__ __forceinline__ uint64_t dmn(uint32_t a){ return (uint64_t)((a&0x3FFFF)>>4)|((uint64_t)((BN*128)>>4)<<16)|(64ull<<32)|(1ull<<62); }
__device__ __forceinline__ float ex2(float x){ float y; asm("ex2.approx.ftz.f32 %0, %1;":"=f"(y):"f"(x)); return y; }
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

// ---- static tile schedule: the same sequence is walked by the producer and by both consumers ----
// non-causal: tile = block + it*G, mb fastest (blocks in flight share K/V of few heads).
// causal: groups of Hg heads, tiles of a group sorted by falling cost and dealt out boustrophedon, so every
// block gets about the same number of keys from each group; the start is rotated from group to group.
struct Sched { int G,M,HB,Hg,R,g,r,pos; };
__device__ __forceinline__ void sched_init(Sched& S,int heads,int sq){
  S.G=(int)(gridDim.x*gridDim.z); S.M=(sq+BM-1)/BM; S.HB=heads*(int)gridDim.z;
  S.pos=(int)(blockIdx.z*gridDim.x+blockIdx.x); S.g=0; S.r=0; S.Hg=1; S.R=1;
  if(CAUSAL){
    int hg=((S.M<16?2:4)*S.G)/S.M; if(hg>S.HB) hg=S.HB; if(hg<1) hg=1;
    S.Hg=hg; S.R=(hg*S.M+S.G-1)/S.G;
  }
}
__device__ __forceinline__ bool sched_next(Sched& S,int& mb,int& hb){
  if(CAUSAL){
    while(S.g<S.HB){
      int g=S.g, hg=S.HB-g; hg=hg<S.Hg?hg:S.Hg;
      int x=S.r*S.G+((S.r&1)?S.G-1-S.pos:S.pos);
      if(++S.r==S.R){ S.r=0; S.g+=S.Hg; S.pos=(S.pos+28)%S.G; }
      if(x<hg*S.M){ int q=x/hg; mb=S.M-1-q; hb=g+x-q*hg; return true; }
    }
    return false;
  } else {
    int t=S.pos; S.pos+=S.G;
    if(t>=S.M*S.HB) return false;
    hb=t/S.M; mb=t-hb*S.M; return true;
  }
}
__device__ __forceinline__ int nblk(int mb,int sq,int sk){
  int n=(sk+BN-1)/BN;
  if(CAUSAL){ int n2=((mb+1)*BM+sk-sq+BN-1)/BN; n=n2<n?n2:n; if(n<1) n=1; }
  return n;
}

__device__ __forceinline__ void qk(float (&s)[BN/2],uint32_t aQ,uint32_t bK){
  #pragma unroll
  for(int k=0;k<HD/16;k++) mma_qk(s, dk(aQ+(k/4)*BM*128+(k%4)*32), dk(bK+(k/4)*BN*128+(k%4)*32), k>0);
}
__device__ __forceinline__ void pv(float (&o)[HD/2],uint32_t (&p)[BN/4],uint32_t bV){
  #pragma unroll
  for(int k=0;k<BN/16;k++) mma_pv(o,p[4*k],p[4*k+1],p[4*k+2],p[4*k+3], dmn(bV+k*2048), 1);
}
// does a key tile hold a dead element for the 64 rows from rw0 on?
__device__ __forceinline__ bool needs_mask(int n,int rw0,int sq,int sk){
  int e=(n+1)*BN; bool d=e>sk; if(CAUSAL) d = d || (e>rw0+sk-sq+1); return d;
}
__device__ __forceinline__ void mask(float (&s)[BN/2],int n,int row0,int lane,int sq,int sk){
  int cb=n*BN+(lane&3)*2;
  #pragma unroll
  for(int r=0;r<2;r++){
    int lim=sk-cb; if(CAUSAL){ int l2=row0+8*r+sk-sq+1-cb; lim=l2<lim?l2:lim; }
    #pragma unroll
    for(int i=0;i<BN/8;i++){
      if(8*i>=lim) s[4*i+2*r]=-INFINITY;
      if(8*i+1>=lim) s[4*i+2*r+1]=-INFINITY;
    }
  }
}
template<bool FIRST> __device__ __forceinline__ void softmax(float (&s)[BN/2],float (&m)[2],float (&l)[2],float (&al)[2],float sl2){
  #pragma unroll
  for(int r=0;r<2;r++){
    float mx=FIRST?-INFINITY:m[r];
    #pragma unroll
    for(int i=0;i<BN/8;i++){ mx=fmaxf(mx,s[4*i+2*r]); mx=fmaxf(mx,s[4*i+2*r+1]); }
    mx=fmaxf(mx,__shfl_xor_sync(0xffffffff,mx,1)); mx=fmaxf(mx,__shfl_xor_sync(0xffffffff,mx,2));
    float ms = mx==-INFINITY?0.f:mx*sl2;
    if(!FIRST) al[r]=ex2(m[r]*sl2-ms);
    m[r]=mx; float sum=0;
    #pragma unroll
    for(int i=0;i<BN/8;i++){ float x=ex2(s[4*i+2*r]*sl2-ms), y=ex2(s[4*i+2*r+1]*sl2-ms); s[4*i+2*r]=x; s[4*i+2*r+1]=y; sum+=x+y; }
    if(FIRST) l[r]=sum; else l[r]=l[r]*al[r]+sum;
  }
}
__device__ __forceinline__ void pack(uint32_t (&p)[BN/4],float (&s)[BN/2]){
  #pragma unroll
  for(int k=0;k<BN/16;k++){ p[4*k]=pk(s[8*k],s[8*k+1]); p[4*k+1]=pk(s[8*k+2],s[8*k+3]); p[4*k+2]=pk(s[8*k+4],s[8*k+5]); p[4*k+3]=pk(s[8*k+6],s[8*k+7]); }
}
// normalize, write lse, stage this warpgroup's 64 rows in 128B-swizzled layout and start the TMA store.
// The caller has made sure (thread 0 waits, then a barrier) that the earlier store has read the staging rows.
__device__ __forceinline__ void epilogue(float (&o)[HD/2],float (&m)[2],float (&l)[2],float* lse,const TensorMap* mo,
   uint32_t aO,int w,int tid,int mb,int hb,int heads,int sq,float sl2){
  int lane=tid&31, wp=tid>>5, row0=mb*BM+w*64+wp*16+(lane>>2);
  #pragma unroll
  for(int r=0;r<2;r++){ l[r]+=__shfl_xor_sync(0xffffffff,l[r],1); l[r]+=__shfl_xor_sync(0xffffffff,l[r],2); }
  float inv[2]={l[0]>0?1.f/l[0]:0.f, l[1]>0?1.f/l[1]:0.f};
  #pragma unroll
  for(int i=0;i<HD/8;i++){
    int slab=i/8, ch=i%8;
    #pragma unroll
    for(int r=0;r<2;r++){ int row=wp*16+(lane>>2)+8*r; uint32_t v=pk(o[4*i+2*r]*inv[r],o[4*i+2*r+1]*inv[r]);
      uint32_t ad=aO+slab*BM*128+row*128+((ch^(row&7))<<4)+(lane&3)*4; asm volatile("st.shared.b32 [%0], %1;"::"r"(ad),"r"(v):"memory"); } }
  asm volatile("fence.proxy.async.shared::cta;":::"memory");
  nb_sync(4+w,128);
  if(tid==0){
    int b=hb/heads, h=hb-b*heads;
    #pragma unroll
    for(int s=0;s<SL;s++) tma4s(aO+s*BM*128,mo,s*64,h,mb*BM+w*64,b);
    asm volatile("cp.async.bulk.commit_group;":::"memory");
  }
  if((lane&3)==0){
    #pragma unroll
    for(int r=0;r<2;r++){ int rr=row0+8*r; if(rr<sq) lse[(long)hb*sq+rr]= l[r]>0? (m[r]*sl2+log2f(l[r]))*0.69314718056f : -INFINITY; }
  }
}

extern "C" __global__ void __launch_bounds__(128*(NWG+1),1) fwd(const __grid_constant__ AttentionParams params,
    const __grid_constant__ TensorMap mq,const __grid_constant__ TensorMap mk,const __grid_constant__ TensorMap mv,const __grid_constant__ TensorMap mo){
  float* const lse=params.lse; const int heads=params.heads, kvh=params.kv_heads, sq=params.seqlen_q, sk=params.seqlen_k;
  const float sl2=params.softmax_scale*1.4426950408889634f;   // log2(e): exponentials are powers of two
  extern __shared__ __align__(1024) unsigned char smraw[];
  unsigned char* base=(unsigned char*)(((uint64_t)smraw+1023)&~1023ull);
  uint32_t sQ=sm(base), sK=sQ+2*QB, sV=sK+ST*KB, sO=sV+ST*KB;
  __shared__ alignas(8) uint64_t bars[4+4*ST];
  uint32_t fQ=sm(&bars[0]), eQ=fQ+16, fK=eQ+16, eK=fK+8*ST, fV=eK+8*ST, eV=fV+8*ST;
  int wg=threadIdx.x>>7, tid=threadIdx.x&127;
  if(threadIdx.x==0){
    for(int i=0;i<2;i++){ bar_init(fQ+8*i,1); bar_init(eQ+8*i,NWG); }
    for(int i=0;i<ST;i++){ bar_init(fK+8*i,1); bar_init(eK+8*i,NWG); bar_init(fV+8*i,1); bar_init(eV+8*i,NWG); }
    asm volatile("fence.mbarrier_init.release.cluster;");
  }
  __syncthreads();
  if(wg==0){
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;"::"n"(40));
    if(tid==0){
      Sched S; sched_init(S,heads,sq);
      int mb=0,hb=0; uint32_t c=0,i=0; int grp=heads/kvh;
      while(sched_next(S,mb,hb)){
        int b=hb/heads, h=hb-b*heads, hk=h/grp;
        uint32_t q=i&1;
        bar_wait(eQ+8*q,((i>>1)&1)^1); bar_expect(fQ+8*q,QB);
        #pragma unroll
        for(int s=0;s<SL;s++) tma4(sQ+q*QB+s*BM*128,&mq,fQ+8*q,s*64,h,mb*BM,b);
        i++;
        #pragma unroll 1
        for(int n=nblk(mb,sq,sk)-1;n>=0;n--){
          uint32_t st=c%ST, ph=(c/ST)&1; c++;
          bar_wait(eK+8*st,ph^1); bar_expect(fK+8*st,KB);
          #pragma unroll
          for(int s=0;s<SL;s++) tma4(sK+st*KB+s*BN*128,&mk,fK+8*st,s*64,hk,n*BN,b);
          bar_wait(eV+8*st,ph^1); bar_expect(fV+8*st,KB);
          #pragma unroll
          for(int s=0;s<SL;s++) tma4(sV+st*KB+s*BN*128,&mv,fV+8*st,s*64,hk,n*BN,b);
        }
      }
    }
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;"::"n"(232));
    int w=wg-1, lane=tid&31, wp=tid>>5;
    Sched S; sched_init(S,heads,sq);
    int mb=0,hb=0,nmb=0,nhb=0;
    if(!sched_next(S,mb,hb)) return;
    bool more=sched_next(S,nmb,nhb);
    int rloc=w*64+wp*16+(lane>>2);       // this thread's first row inside a tile
    float o[HD/2]; float m[2], l[2];
    #pragma unroll
    for(int i=0;i<HD/2;i++) o[i]=0;
    uint32_t p[BN/4];
    uint32_t aO=sO+w*64*128, aQ=sQ+w*64*128;
    uint32_t c=0, qi=0;                  // running K/V tile and running Q tile of this block
    int nm=nblk(mb,sq,sk);
    if(w==1) nb_arrive(1,256);
    // first key tile of the first q tile: the only one whose scores are not overlapped with a P.V
    { float s[BN/2]; float al[2];
      bar_wait(fQ,0);
      bar_wait(fK,0);
      nb_sync(1+w,256);
      wfence(); qk(s,aQ,sK); wcommit();
      nb_arrive(1+(w^1),256);
      wwait<0>();
      if(tid==0){ bar_arrive(eK); if(nm==1) bar_arrive(eQ); }
      if(needs_mask(nm-1,mb*BM+w*64,sq,sk)) mask(s,nm-1,mb*BM+rloc,lane,sq,sk);
      softmax<true>(s,m,l,al,sl2); pack(p,s);
    }
    #pragma unroll 1
    for(;;){
      #pragma unroll 1
      for(int j=1;j<nm;j++){
        c++;
        uint32_t st=c%ST, ph=(c/ST)&1, sp=(c-1)%ST, pp=((c-1)/ST)&1; float s[BN/2]; float al[2];
        bar_wait(fK+8*st,ph);
        nb_sync(1+w,256);
        wfence(); qk(s,aQ,sK+st*KB); wcommit();
        bar_wait(fV+8*sp,pp);
        pv(o,p,sV+sp*KB); wcommit();
        nb_arrive(1+(w^1),256);
        wwait<1>();
        if(tid==0){ bar_arrive(eK+8*st); if(j==nm-1) bar_arrive(eQ+8*(qi&1)); }
        if(CAUSAL){ int n=nm-1-j; if(needs_mask(n,mb*BM+w*64,sq,sk)) mask(s,n,mb*BM+rloc,lane,sq,sk); }
        softmax<false>(s,m,l,al,sl2);
        wwait<0>();
        if(tid==0) bar_arrive(eV+8*sp);
        #pragma unroll
        for(int i=0;i<HD/2;i++) o[i]*=al[(i>>1)&1];
        pack(p,s);
      }
      if(!more) break;
      // seam: Q.K of the next tile's first keys runs together with the last P.V of this tile
      { int omb=mb, ohb=hb; float m0[2]={m[0],m[1]}, l0[2]={l[0],l[1]};
        mb=nmb; hb=nhb; nm=nblk(mb,sq,sk); qi++; c++;
        uint32_t qs=qi&1, st=c%ST, ph=(c/ST)&1, sp=(c-1)%ST, pp=((c-1)/ST)&1; float s[BN/2]; float al[2];
        aQ=sQ+qs*QB+w*64*128;
        if(tid==0) bulk_read0();           // staging rows free; the nb_sync below tells the other threads
        bar_wait(fQ+8*qs,(qi>>1)&1);
        bar_wait(fK+8*st,ph);
        nb_sync(1+w,256);
        wfence(); qk(s,aQ,sK+st*KB); wcommit();
        bar_wait(fV+8*sp,pp);
        pv(o,p,sV+sp*KB); wcommit();
        nb_arrive(1+(w^1),256);
        wwait<1>();
        if(tid==0){ bar_arrive(eK+8*st); if(nm==1) bar_arrive(eQ+8*qs); }
        if(needs_mask(nm-1,mb*BM+w*64,sq,sk)) mask(s,nm-1,mb*BM+rloc,lane,sq,sk);
        softmax<true>(s,m,l,al,sl2);
        wwait<0>();
        if(tid==0) bar_arrive(eV+8*sp);
        epilogue(o,m0,l0,lse,&mo,aO,w,tid,omb,ohb,heads,sq,sl2);
        #pragma unroll
        for(int i=0;i<HD/2;i++) o[i]=0;
        pack(p,s);
        more=sched_next(S,nmb,nhb);
      }
    }
    // last tile of this block
    { uint32_t sp=c%ST, pp=(c/ST)&1;
      if(tid==0) bulk_read0();
      bar_wait(fV+8*sp,pp);
      nb_sync(1+w,256);
      wfence(); pv(o,p,sV+sp*KB); wcommit();
      if(w==0) nb_arrive(1+(w^1),256);
      wwait<0>(); }
    epilogue(o,m,l,lse,&mo,aO,w,tid,mb,hb,heads,sq,sl2);
    if(tid==0) bulk_read0();
  }
}
