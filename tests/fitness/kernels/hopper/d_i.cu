/*evo
contract = 1
name = "persistent, lazy rescale"
targets = ["sm_90a"]
supports = "(head_dim == 64 or head_dim == 128) and bf16 == 1 and seqlen_q == seqlen_k"

[defines]
HD = "head_dim"
CAUSAL = "causal"

[[tensor_map]]
tensor = "q"
box = ["64", "1", "256 - HD", "1"]
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
grid = ["max(1, sm_count // batch)", "batch", "1"]
block = ["640 - 2 * HD"]
shared_bytes = "6 * (256 - HD) * HD + 132096"
*/

#include "attention.cuh"
// HD (64 or 128) and CAUSAL (0 or 1) come as -D flags; the rest is yours to set.
constexpr int BN=128, NWG=(HD==64)?3:2, BM=64*NWG, ST=(HD==64)?4:2, QS=3;
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
__device__ __forceinline__ float rcpa(float x){ float y; asm("rcp.approx.ftz.f32 %0, %1;":"=f"(y):"f"(x)); return y; }
__device__ __forceinline__ void pfmap(const TensorMap* m){ asm volatile("prefetch.tensormap [%0];"::"l"(m):"memory"); }

extern "C" __global__ void __launch_bounds__(128*(NWG+1),1) fwd(const __grid_constant__ AttentionParams params,
    const __grid_constant__ TensorMap mq,const __grid_constant__ TensorMap mk,const __grid_constant__ TensorMap mv,const __grid_constant__ TensorMap mo){
  float* const lse=params.lse; const int heads=params.heads, kvh=params.kv_heads, sq=params.seqlen_q, sk=params.seqlen_k;
  const float sl2=params.softmax_scale*1.4426950408889634f;   // log2(e): exponentials are powers of two
  extern __shared__ __align__(1024) unsigned char smraw[];
  uint32_t sQ=(sm(smraw)+1023u)&~1023u, sK=sQ+QS*QB, sV=sK+ST*KB;
  __shared__ alignas(8) uint64_t bars[QS*(2+NWG)+4*ST];
  __shared__ int tinfo[4*QS];          // per q slot: m block, head, batch, number of key tiles (0 = no more work)
  __shared__ int sc[8];                // producer's schedule constants (kept out of its few registers)
  __shared__ float sinv[64*NWG];       // 1/l of the finished tile's rows
  uint32_t fQ=sm(&bars[0]), eQ=fQ+8*QS, oF=eQ+8*QS, fK=oF+8*QS*NWG, eK=fK+8*ST, fV=eK+8*ST, eV=fV+8*ST;
  int wg=threadIdx.x>>7, tid=threadIdx.x&127;
  if(threadIdx.x==0){
    pfmap(&mq); pfmap(&mk); pfmap(&mv); pfmap(&mo);
    for(int i=0;i<QS;i++){ bar_init(fQ+8*i,1); bar_init(eQ+8*i,1); }
    for(int i=0;i<QS*NWG;i++) bar_init(oF+8*i,4);
    for(int i=0;i<ST;i++){ bar_init(fK+8*i,1); bar_init(eK+8*i,NWG); bar_init(fV+8*i,1); bar_init(eV+8*i,NWG); }
    asm volatile("fence.mbarrier_init.release.cluster;");
  }
  __syncthreads();
  if(wg==0){
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;"::"n"(NWG==2?40:32));
    if(tid==0){
      // ---- producer and static scheduler ----
      volatile int* vs=sc;
      const int G=(int)(gridDim.x*gridDim.y), c=(int)(blockIdx.y*gridDim.x+blockIdx.x), HB=heads*(int)gridDim.y;
      const int MB=(sq+BM-1)/BM;
      int L=0;                                   // lightest m blocks, kept for the end (causal, long sequences)
      if(CAUSAL && MB>=16){ L=MB>>2; L+=(MB-L)&1; }
      {
        int PA=CAUSAL?((MB-L+1)>>1):MB, NA=PA*HB;   // units: causal = a heavy and a light m block of one head
        int rot=((G%PA)==0 || ((G|PA)&1)==0)?1:0;   // so that a block sees all m blocks in turn
        int fr=NA/G, rem=NA-fr*G, pos=(c+fr*rot)%G, nq=0;
        if(L>0 && rem>0){ nq=(L*HB)/(G-rem); if(nq>5) nq=5; }
        vs[0]=PA; vs[1]=rot; vs[2]=fr+(pos<rem?1:0); vs[3]=pos-rem; vs[4]=G-rem; vs[5]=(pos>=rem)?nq:0; vs[6]=nq*(G-rem);
      }
      int qs=0, qp=0, kc=0;
      for(int q=0;;q++){
        int mb,hb; int na=vs[2]; int i=CAUSAL?(q>>1):q;
        if(i<na){
          int PA=vs[0]; int u=i*G+(c+i*vs[1])%G; hb=u/PA; int k=u-hb*PA;
          if(CAUSAL){ mb=MB-1-k; if(q&1){ if(L+k>=mb) continue; mb=L+k; } }
          else mb=k;
        } else {
          if(!CAUSAL) break;
          int x=q-2*na, e, mine=vs[5];
          if(x<mine) e=vs[3]+vs[4]*x;
          else { x-=mine; e=vs[6]+x*G+((x&1)?(G-1-c):c); if(e>=L*HB) break; }
          int lv=e/HB; mb=L-1-lv; hb=e-lv*HB;
        }
        int b=hb/heads, h=hb-b*heads, hk=h/(heads/kvh);
        int n=(sk+BN-1)/BN;
        if(CAUSAL){ int re=(mb+1)*BM; if(re>sq) re=sq; int n2=(re+sk-sq+BN-1)/BN; if(n2<n) n=n2; if(n<1) n=1; }
        bar_wait(eQ+8*qs,qp^1);
        tinfo[4*qs]=mb; tinfo[4*qs+1]=h; tinfo[4*qs+2]=b; tinfo[4*qs+3]=n;
        bar_expect(fQ+8*qs,QB);
        #pragma unroll
        for(int s=0;s<SL;s++) tma4(sQ+qs*QB+s*BM*128,&mq,fQ+8*qs,s*64,h,mb*BM,b);
        #pragma unroll 1
        for(n--;n>=0;n--){ int st=kc&(ST-1), ph=(kc/ST)&1; kc++;
          bar_wait(eK+8*st,ph^1); bar_expect(fK+8*st,KB);
          #pragma unroll
          for(int s=0;s<SL;s++) tma4(sK+st*KB+s*BN*128,&mk,fK+8*st,s*64,hk,n*BN,b);
          bar_wait(eV+8*st,ph^1); bar_expect(fV+8*st,KB);
          #pragma unroll
          for(int s=0;s<SL;s++) tma4(sV+st*KB+s*BN*128,&mv,fV+8*st,s*64,hk,n*BN,b);
        }
        if(++qs==QS){ qs=0; qp^=1; }
      }
      bar_wait(eQ+8*qs,qp^1); tinfo[4*qs+3]=0; bar_arrive(fQ+8*qs);
    } else if(tid==32){
      // ---- store thread: output leaves from the tile's q slot, then the slot is free ----
      int qs=0, qp=0;
      for(;;){
        bar_wait(fQ+8*qs,qp);
        int mb=tinfo[4*qs], h=tinfo[4*qs+1], b=tinfo[4*qs+2], nm=tinfo[4*qs+3];
        if(nm==0) break;
        #pragma unroll 1
        for(int w=0;w<NWG;w++){
          bar_wait(oF+8*(qs*NWG+w),qp);
          if(mb*BM+w*64<sq){
            #pragma unroll
            for(int s=0;s<SL;s++) tma4s(sQ+qs*QB+w*8192+s*BM*128,&mo,s*64,h,mb*BM+w*64,b);
          }
        }
        asm volatile("cp.async.bulk.commit_group; cp.async.bulk.wait_group.read 0;":::"memory");
        bar_arrive(eQ+8*qs);
        if(++qs==QS){ qs=0; qp^=1; }
      }
    }
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;"::"n"(NWG==2?232:160));
    int w=wg-1, lane=tid&31, wp=tid>>5;
    const int me=1+w, nx=(w==NWG-1)?1:2+w;
    float o[HD/2]; float m[2]={-INFINITY,-INFINITY}, l[2]={0,0};
    #pragma unroll
    for(int i=0;i<HD/2;i++) o[i]=0;
    uint32_t aQ=sQ;
    uint32_t p[BN/4];
    #pragma unroll
    for(int i=0;i<BN/4;i++) p[i]=0;
    int qs=0, qp=0, kc=0, vp=0; bool pend=false;   // pend: p of the previous tile's last keys (V tile vp) is still to be multiplied
    auto qk=[&](float (&s)[BN/2],int st){
      #pragma unroll
      for(int k=0;k<HD/16;k++) mma_qk(s, dk(aQ+(k/4)*BM*128+(k%4)*32), dk(sK+st*KB+(k/4)*BN*128+(k%4)*32), k>0);
    };
    auto pv=[&](int st){
      #pragma unroll
      for(int k=0;k<BN/16;k++) mma_pv(o,p[4*k],p[4*k+1],p[4*k+2],p[4*k+3], dmn(sV+st*KB+k*2048), 1);
    };
    auto mask=[&](float (&s)[BN/2],int n){
      int d=n*BN+(lane&3)*2; int l0=sk-d, l1=l0;
      if(CAUSAL){ int x=tinfo[4*qs]*BM+w*64+wp*16+(lane>>2)+sk-sq+1-d; l0=l0<x?l0:x; l1=l1<x+8?l1:x+8; }
      #pragma unroll
      for(int i=0;i<BN/2;i++){ const int cc=(i/4)*8+(i&1); if(cc>=((i&2)?l1:l0)) s[i]=-INFINITY; }
    };
    // exponentials in place; the running maximum moves only when it grows by more than 2^8; true if some row of the warp moved
    auto softmax=[&](float (&s)[BN/2],float (&al)[2])->bool{
      float x0=fmaxf(s[0],s[1]), x1=fmaxf(s[2],s[3]), y0=fmaxf(s[4],s[5]), y1=fmaxf(s[6],s[7]);
      #pragma unroll
      for(int i=2;i<BN/8;i+=2){
        x0=fmaxf(x0,s[4*i]);   x1=fmaxf(x1,s[4*i+2]); y0=fmaxf(y0,s[4*i+4]); y1=fmaxf(y1,s[4*i+6]);
        x0=fmaxf(x0,s[4*i+1]); x1=fmaxf(x1,s[4*i+3]); y0=fmaxf(y0,s[4*i+5]); y1=fmaxf(y1,s[4*i+7]); }
      x0=fmaxf(x0,y0); x1=fmaxf(x1,y1);
      y0=__shfl_xor_sync(0xffffffff,x0,1); y1=__shfl_xor_sync(0xffffffff,x1,1); x0=fmaxf(x0,y0); x1=fmaxf(x1,y1);
      y0=__shfl_xor_sync(0xffffffff,x0,2); y1=__shfl_xor_sync(0xffffffff,x1,2); x0=fmaxf(x0,y0); x1=fmaxf(x1,y1);
      bool u0=(x0-m[0])*sl2>8.f, u1=(x1-m[1])*sl2>8.f;        // -inf minus -inf is NaN: no move
      al[0]=u0?ex2((m[0]-x0)*sl2):1.f; al[1]=u1?ex2((m[1]-x1)*sl2):1.f;
      if(u0) m[0]=x0;
      if(u1) m[1]=x1;
      bool up=__any_sync(0xffffffff,u0||u1)!=0;
      float n0=m[0]==-INFINITY?0.f:-m[0]*sl2, n1=m[1]==-INFINITY?0.f:-m[1]*sl2;
      float t0=0.f, t1=0.f;
      #pragma unroll
      for(int i=0;i<BN/8;i++){
        float a=ex2(fmaf(s[4*i],sl2,n0)), b=ex2(fmaf(s[4*i+1],sl2,n0)), e=ex2(fmaf(s[4*i+2],sl2,n1)), f=ex2(fmaf(s[4*i+3],sl2,n1));
        s[4*i]=a; s[4*i+1]=b; s[4*i+2]=e; s[4*i+3]=f; t0+=a+b; t1+=e+f; }
      l[0]=fmaf(l[0],al[0],t0); l[1]=fmaf(l[1],al[1],t1);
      return up;
    };
    auto pack=[&](float (&s)[BN/2]){
      #pragma unroll
      for(int k=0;k<BN/16;k++){ p[4*k]=pk(s[8*k],s[8*k+1]); p[4*k+1]=pk(s[8*k+2],s[8*k+3]); p[4*k+2]=pk(s[8*k+4],s[8*k+5]); p[4*k+3]=pk(s[8*k+6],s[8*k+7]); }
    };
    // normalise o into this warpgroup's rows of the previous tile's q slot (128B swizzle), hand them to the store thread, clear o
    auto epi=[&](){
      int ps=(qs==0)?QS-1:qs-1; int row=wp*16+(lane>>2);
      float i0=sinv[w*64+row], i1=sinv[w*64+row+8];
      uint32_t ad=sQ+ps*QB+w*8192+row*128+(lane&3)*4; int sw=lane>>2;
      #pragma unroll
      for(int i=0;i<HD/8;i++){
        uint32_t a0=ad+(i/8)*BM*128+(((i%8)^sw)<<4);
        uint32_t v0=pk(o[4*i]*i0,o[4*i+1]*i0), v1=pk(o[4*i+2]*i1,o[4*i+3]*i1);
        asm volatile("st.shared.b32 [%0], %1;"::"r"(a0),"r"(v0):"memory");
        asm volatile("st.shared.b32 [%0], %1;"::"r"(a0+1024),"r"(v1):"memory"); }
      asm volatile("fence.proxy.async.shared::cta;":::"memory");
      __syncwarp();
      if(lane==0) bar_arrive(oF+8*(ps*NWG+w));
      #pragma unroll
      for(int i=0;i<HD/2;i++) o[i]=0;
    };
    if(w==NWG-1) nb_arrive(1,256);
    for(;;qs=(qs==QS-1)?(qp^=1,0):qs+1){
      bar_wait(fQ+8*qs,qp);
      int nmax=tinfo[4*qs+3], rs=tinfo[4*qs]*BM+w*64, nw=0, nf=0;   // nw: key tiles this warpgroup needs; nf: those before any mask
      if(nmax>0 && rs<sq){
        nw=nmax; nf=sk/BN;
        if(CAUSAL){
          int re=rs+64; if(re>sq) re=sq;
          int x=(re+sk-sq+BN-1)/BN; if(x<nw) nw=x; if(nw<1) nw=1;
          int y=(rs+sk-sq+1)/BN; if(y<nf) nf=y; }
      }
      if(pend && (nw==0 || nmax-nw>=ST)){
        int sp=vp&(ST-1); bar_wait(fV+8*sp,(vp/ST)&1);
        wfence(); pv(sp); wcommit();
        wwait<0>();
        if(tid==0) bar_arrive(eV+8*sp);
        epi(); pend=false;
      }
      if(nmax==0) break;
      if(nw==0 && lane==0) bar_arrive(oF+8*(qs*NWG+w));
      // key tiles that are all masked for these rows: pass the turn and give the buffers back
      #pragma unroll 1
      for(int j=nmax-nw;j>0;j--){
        nb_sync(me,256); nb_arrive(nx,256);
        int st=kc&(ST-1), ph=(kc/ST)&1; kc++;
        bar_wait(fK+8*st,ph); if(tid==0) bar_arrive(eK+8*st);
        bar_wait(fV+8*st,ph); if(tid==0) bar_arrive(eV+8*st);
      }
      if(nw==0) continue;
      aQ=sQ+qs*QB+w*8192;
      m[0]=m[1]=-INFINITY; l[0]=l[1]=0.f;
      int n=nw-1; bool first=true;
      if(!pend){
        float s[BN/2]; float al[2]; int st=kc&(ST-1), ph=(kc/ST)&1;
        bar_wait(fK+8*st,ph);
        nb_sync(me,256);
        wfence(); qk(s,st); wcommit();
        nb_arrive(nx,256);
        wwait<0>();
        if(tid==0) bar_arrive(eK+8*st);
        if(n>=nf) mask(s,n);
        softmax(s,al); pack(s);
        vp=kc; kc++; n--; first=false;
      }
      #pragma unroll 1
      for(;n>=0;n--){
        float s[BN/2]; float al[2];
        int st=kc&(ST-1), ph=(kc/ST)&1, sp=vp&(ST-1), pp=(vp/ST)&1;
        bar_wait(fK+8*st,ph);
        nb_sync(me,256);
        wfence(); qk(s,st); wcommit();
        bar_wait(fV+8*sp,pp);
        pv(sp); wcommit();
        nb_arrive(nx,256);
        wwait<1>();
        if(tid==0) bar_arrive(eK+8*st);
        if(n>=nf) mask(s,n);
        bool up=softmax(s,al);
        wwait<0>();
        if(tid==0) bar_arrive(eV+8*sp);
        if(first) epi();                       // o belongs to the previous tile: write it out, start from zero
        else if(up){
          #pragma unroll
          for(int i=0;i<HD/2;i++) o[i]*=al[(i>>1)&1];
        }
        pack(s);
        vp=kc; kc++; first=false;
      }
      // l and m are final before the last P*V: lse now, 1/l kept for the write-out one round later
      #pragma unroll
      for(int r=0;r<2;r++){ l[r]+=__shfl_xor_sync(0xffffffff,l[r],1); l[r]+=__shfl_xor_sync(0xffffffff,l[r],2); }
      if((lane&3)==0){
        int row=wp*16+(lane>>2), rr=tinfo[4*qs]*BM+w*64+row;
        float* lp=lse+((long long)tinfo[4*qs+2]*heads+tinfo[4*qs+1])*sq+rr;
        #pragma unroll
        for(int r=0;r<2;r++){
          sinv[w*64+row+8*r]=l[r]>0.f?rcpa(l[r]):0.f;
          if(rr+8*r<sq) lp[8*r]=l[r]>0.f?(m[r]*sl2+log2f(l[r]))*0.69314718056f:-INFINITY; }
      }
      __syncwarp();
      pend=true;
    }
  }
}
