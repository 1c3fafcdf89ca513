"""Reductions, softmax, scans, and what sorts."""

from .expand import FLOATS, INTEGERS, expand, fixed, shape

SHAPES = (
    shape("latency", 8, 8),
    shape("cache", 1024, 64),
    shape("cache", 64, 1024),
    shape("memory", 2048, 2048, main=True),
    shape("memory", 262144, 16),
    shape("memory", 16, 262144),
)

REDUCTIONS = """
sum(X)
sum.dim_IntList(X,[-1])
sum.dim_IntList(X,[0])
mean(X)
mean.dim(X,[-1])
mean.dim(X,[0])
nansum(X,[-1])
nansum(X,[0])
prod(X:0.9..1.1)
prod.dim_int(X:0.9..1.1,-1)
prod.dim_int(X:0.9..1.1,0)
amax(X,[-1])
amax(X,[0])
amin(X,[-1])
max(X)
min(X)
max.dim(X,-1)
max.dim(X,0)
min.dim(X,-1)
aminmax(X,dim=-1)
logsumexp(X,[-1])
logsumexp(X,[0])
std(X)
std.dim(X,[-1])
std.correction(X,[0],correction=1)
std_mean(X)
std_mean.dim(X,[-1])
std_mean.correction(X,[0],correction=1)
var(X)
var.dim(X,[-1])
var.correction(X,[0],correction=0)
var_mean(X)
var_mean.dim(X,[-1])
var_mean.correction(X,[0],correction=0)
norm.Scalar(X)
norm.ScalarOpt_dim(X,2,[-1])
norm.ScalarOpt_dim(X,2,[0])
linalg_vector_norm(X,2)
linalg_vector_norm(X,2,[-1])
linalg_vector_norm(X,1,[-1])
linalg_vector_norm(X,3,[-1])
softmax.int(X,-1)
softmax.int(X,0)
_softmax(X,-1,False)
_safe_softmax(X,-1)
log_softmax.int(X,-1)
log_softmax.int(X,0)
_log_softmax(X,-1,False)
cumsum(X,-1)
cumsum(X,0)
cumprod(X:0.9..1.1,-1)
cumprod(X:0.9..1.1,0)
cummax(X,-1)
cummax(X,0)
cummin(X,-1)
"""

SEARCHES = """
argmax(X)
argmax(X,-1)
argmax(X,0)
argmin(X,-1)
argmin(X,0)
any(X)
any.dim(X,-1)
any.dim(X,0)
any.dims(X,[-1])
all(X)
all.dim(X,-1)
all.dim(X,0)
all.dims(X,[-1])
count_nonzero(X)
count_nonzero.dim_IntList(X,[-1])
"""

WHOLE = """
sum(X)
sum.dim_IntList(X,[-1])
sum.dim_IntList(X,[0])
prod.dim_int(X:1..2,-1)
amax(X,[-1])
amax(X,[0])
max.dim(X,-1)
argmax(X,-1)
cumsum(X,-1)
cumsum(X,0)
any.dim(X,-1)
all(X)
"""

SORTS = """
sort(X,-1)
sort(X,0)
sort.stable(X,stable=True,dim=-1)
sort(X,-1,True)
topk(X,5,-1)
topk(X,5,0)
"""

ORDERS = """
argsort(X,-1)
argsort.stable(X,stable=True,dim=-1)
"""

SORTED = (
    shape("latency", 8, 8),
    shape("cache", 64, 1024),
    shape("memory", 1024, 1024, main=True),
    shape("memory", 65536, 16),
    shape("memory", 8, 131072),
)

FIXED = """
!m sum.dim_IntList(f32[16,256,32,32],[2,3])
m sum.dim_IntList(f32[16,256,32,32],[0,2,3])
m sum.dim_IntList(f32[16,256,32,32]:cl,[0,2,3])
m sum.dim_IntList(f32[64,256,256],[1])
m mean.dim(f32[16,256,32,32],[2,3])
m mean.dim(f32[16,256,32,32]:cl,[2,3])
m amax(f32[64,256,256],[1])
m var.dim(f32[16,256,32,32],[0,2,3])
m sum(f32[2048,2048],dtype=f64)
m sum(bf16[2048,2048],dtype=f32)
m mean(bf16[2048,2048],dtype=f32)
m norm.ScalarOpt_dtype(bf16[2048,2048],2,dtype=f32)
m norm.ScalarOpt_dim_dtype(bf16[2048,2048],2,[-1],False,dtype=f32)
m softmax.int(f32[16,32,32,32],1)
m softmax.int(bf16[4096,1024],-1,dtype=f32)
m _softmax_backward_data(f32[4096,1024],f32[4096,1024],-1,f32)
m _log_softmax_backward_data(f32[4096,1024],f32[4096,1024],-1,f32)
m cosine_similarity(f32[4096,1024],f32[4096,1024],1)
c cosine_similarity(f32[1024,64],f32[1024,64],1)
m grad:cosine_similarity(f32[4096,1024],f32[4096,1024],1)
m sum.dim_IntList(f32[2048,2048]:w,[-1])
m sum(f32[2048,2048]:w)
m softmax.int(f32[2048,2048]:w,-1)
!m topk(f32[256,50000],50,-1)
m topk(f32[1048576],10,-1)
m topk(f32[1048576],1000,-1)
m sort(f32[1048576],0)
!m sort(i64[1048576]:0..1000000,0)
m argsort(i64[1048576]:0..1000000,0)
m sort(f32[1048576]:sorted,0)
m cumsum(f32[4194304],0)
c cumsum(f32[65536],0)
l sum(f32[64])
l argmax(f32[64])
m any(bool[2048,2048]:0..1)
m all(bool[2048,2048]:1..2)
!m sum(bool[2048,2048])
!m sum.dim_IntList(bool[2048,2048],[-1])
m mean.dim(f16[2048,2048],[-1])
m diff(f32[2048,2048])
m diff(f32[2048,2048],1,0)
"""


def cases():
    yield from expand("reductions and scans", REDUCTIONS, SHAPES)
    yield from expand("searches", SEARCHES, SHAPES, dtypes=(*FLOATS, *INTEGERS, "bool"), backward=False)
    yield from expand("reductions and scans", WHOLE, SHAPES, dtypes=INTEGERS, layouts=("",), backward=False)
    yield from expand("sorts", SORTS, SORTED, dtypes=(*FLOATS, *INTEGERS))
    yield from expand("sorts", ORDERS, SORTED, dtypes=(*FLOATS, *INTEGERS), backward=False)
    yield from fixed("reductions and scans", FIXED)
