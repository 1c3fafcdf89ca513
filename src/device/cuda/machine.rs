//! The GPUs of this computer as a [`Runtime`]: their streams, points and memory.
//!
//! The driver is looked for once, when a CUDA device is first asked for. A device's context is made when the device is
//! first used. To callers, streams and points are numbers; tables here map them to handles. So an invented number is
//! never used as a handle. Stream 0 is a stream of ours. The driver's default stream would wait for others, and cannot
//! be captured.

use super::cublaslt::Handle;
use super::driver::{self, Context, Mark, Memory, Module, Queue};
use super::faults::{Faults, Records};
use super::loader::DRIVER;
use super::no_device;
use super::staging::Staging;
use crate::device::allocator::Allocator;
use crate::device::block::{Block, Owner};
use crate::device::runtime::Runtime;
use crate::device::{Device, DeviceKind, Stream, StreamPool};
use crate::error::{Error, Result};
use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

/// The GPUs of the driver.
pub(crate) struct Machine {
    gpus: Vec<OnceLock<Result<Gpu>>>,
    pools: Vec<StreamPool>,
}

/// A device in use.
struct Gpu {
    context: Arc<Context>,
    staging: Staging,
    records: Arc<Records>,
    /// cublasLt's handle, once a product wants it.
    handle: Mutex<Option<Arc<Handle>>>,
    tables: Mutex<Tables>,
}

/// The handles of numbers.
struct Tables {
    queues: HashMap<u64, Arc<Queue>>,
    marks: HashMap<u64, Point>,
    /// Unused marks. Making one takes longer than reusing it.
    spare: Vec<Arc<Mark>>,
    next: u64,
}

/// A mark, and the faults of its stream.
#[derive(Clone)]
struct Point {
    mark: Arc<Mark>,
    faults: Arc<Faults>,
}

/// Most unused marks that are kept.
const MAX_SPARE: usize = 1024;

/// The architecture that code for a device is compiled for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Architecture {
    /// Compute capability, the part before the point.
    pub(crate) major: u32,
    /// The part after it.
    pub(crate) minor: u32,
}

impl Architecture {
    /// Whether tensor cores multiply 16-bit floats, and asynchronous copies bypass registers.
    pub(crate) fn has_tensor_cores(self) -> bool {
        self.major >= 8
    }

    /// Whether groups of four warps multiply 16-bit floats (`wgmma`), and tensor maps copy boxes. Later devices do this
    /// in another way.
    pub(crate) fn has_wgmma(self) -> bool {
        self.major == 9 && self.minor == 0
    }

    /// Most bytes of workspace for an algorithm of cublasLt, as its documentation recommends.
    pub(crate) fn most_workspace(self) -> usize {
        if self.major >= 9 { 32 << 20 } else { 4 << 20 }
    }
}

impl fmt::Display for Architecture {
    /// As NVRTC takes it: `sm_90`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sm_{}{}", self.major, self.minor)
    }
}

/// The GPUs of this computer.
///
/// # Errors
/// If there is no driver or no device: what was looked for and where. The same at every call.
pub(crate) fn machine() -> Result<Arc<Machine>> {
    static MACHINE: OnceLock<Result<Arc<Machine>>> = OnceLock::new();
    MACHINE.get_or_init(|| Machine::find().map(Arc::new)).clone()
}

/// The architecture of a device.
///
/// # Errors
/// If there is no such device.
pub(crate) fn architecture(device: Device) -> Result<Architecture> {
    let machine = machine()?;
    let (major, minor) = machine.gpu(number(device)?)?.context.capability;
    Ok(Architecture { major, minor })
}

/// Loads a cubin on a device.
///
/// # Errors
/// If there is no such device, or it rejects the cubin.
pub(crate) fn load(device: Device, cubin: &[u8]) -> Result<Arc<Module>> {
    let machine = machine()?;
    Module::new(&machine.gpu(number(device)?)?.context, cubin).map(Arc::new)
}

/// A device's handle of cublasLt, made on first use; cublasLt was found.
///
/// # Errors
/// If there is no such device, or the handle cannot be made; the next call tries again.
pub(super) fn handle(device: Device) -> Result<Arc<Handle>> {
    let machine = machine()?;
    let gpu = machine.gpu(number(device)?)?;
    let mut handle = gpu.handle.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(handle) = &*handle {
        return Ok(handle.clone());
    }
    Ok(handle.insert(Arc::new(Handle::new(&gpu.context)?)).clone())
}

/// The index of a CUDA device; one without an index is an error.
fn number(device: Device) -> Result<u16> {
    let wrong = || no_device(format!("{device} is no numbered CUDA device"), "name it as in Device::cuda(0)");
    device.index.filter(|_| device.kind == DeviceKind::Cuda).ok_or_else(wrong)
}

impl Machine {
    fn find() -> Result<Machine> {
        let hint = "install the driver of an NVIDIA GPU, name its folder in OPFUSE_CUDA_LIB_DIR, or use the cpu";
        DRIVER.find().map_err(|what| no_device(what, hint))?;
        let n_devices = driver::n_devices()?;
        if n_devices == 0 {
            return Err(no_device("the CUDA driver is there, but no GPU is", "use the cpu"));
        }
        let gpus = (0..n_devices).map(|_| OnceLock::new()).collect();
        let pool = |index: u16| StreamPool::new(Device::cuda(index), move |bytes| memory(index, bytes));
        Ok(Machine { gpus, pools: (0..n_devices).map(pool).collect() })
    }

    fn gpu(&self, index: u16) -> Result<&Gpu> {
        let place = self.gpus.get(usize::from(index));
        let place = place.ok_or_else(|| no_device(format!("there is no cuda:{index}"), "use a smaller number"))?;
        place.get_or_init(|| Gpu::new(index)).as_ref().map_err(Clone::clone)
    }

    /// The handle of a stream.
    ///
    /// # Errors
    /// If it is no stream of a CUDA device, or was destroyed.
    pub(crate) fn queue(&self, stream: &Stream) -> Result<Arc<Queue>> {
        self.gpu(number(stream.device())?)?.queue(stream.id())
    }
}

/// Allocates memory of a device.
fn memory(index: u16, bytes: usize) -> Result<Block> {
    let machine = machine()?;
    let memory = Memory::new(&machine.gpu(index)?.context, bytes)?;
    let address = memory.address().ok_or_else(|| Error::invalid("driver", "memory begins at address 0"))?;
    Ok(Block::on_device(address, bytes).lent(Arc::new(memory)))
}

/// The block is only its address; the memory is freed with its owner.
impl Owner for Memory {
    fn take_back(&self, _: Block) {}
}

impl Gpu {
    fn new(index: u16) -> Result<Gpu> {
        let context = Arc::new(Context::new(index)?);
        let records = Arc::new(Records::new(&context));
        let queues = HashMap::from([(0, Queue::new(&context, &records)?)]);
        let tables = Tables { queues, marks: HashMap::new(), spare: Vec::new(), next: 1 };
        let handle = Mutex::default();
        Ok(Gpu { context, staging: Staging::default(), records, handle, tables: Mutex::new(tables) })
    }

    fn tables(&self) -> MutexGuard<'_, Tables> {
        self.tables.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn queue(&self, stream: u64) -> Result<Arc<Queue>> {
        let gone = || no_device(format!("there is no stream {stream}"), "make one with Stream::new");
        self.tables().queues.get(&stream).cloned().ok_or_else(gone)
    }

    fn point(&self, point: u64) -> Result<Point> {
        let gone = || no_device(format!("there is no point {point}"), "record an event");
        self.tables().marks.get(&point).cloned().ok_or_else(gone)
    }
}

impl Tables {
    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next - 1
    }
}

impl Runtime for Machine {
    fn device_count(&self) -> u16 {
        self.gpus.len() as u16
    }

    fn make_current(&self, device: u16) -> Result<()> {
        self.gpu(device)?.context.enter()
    }

    fn create_stream(&self, device: u16) -> Result<u64> {
        let gpu = self.gpu(device)?;
        let queue = Queue::new(&gpu.context, &gpu.records)?;
        let mut tables = gpu.tables();
        let number = tables.number();
        tables.queues.insert(number, queue);
        Ok(number)
    }

    fn destroy_stream(&self, device: u16, stream: u64) {
        let Ok(gpu) = self.gpu(device) else { return };
        let queue = if stream == 0 { None } else { gpu.tables().queues.remove(&stream) };
        if let Some(queue) = queue {
            queue.faults.close();
        }
    }

    fn mark(&self, device: u16, stream: u64) -> Result<u64> {
        let gpu = self.gpu(device)?;
        let queue = gpu.queue(stream)?;
        let spare = gpu.tables().spare.pop();
        let mark = spare.map_or_else(|| Mark::new(&gpu.context).map(Arc::new), Ok)?;
        mark.record(&queue)?;
        let mut tables = gpu.tables();
        let number = tables.number();
        tables.marks.insert(number, Point { mark, faults: queue.faults.clone() });
        Ok(number)
    }

    fn is_reached(&self, device: u16, point: u64) -> Result<bool> {
        self.gpu(device)?.point(point)?.mark.is_reached()
    }

    fn wait(&self, device: u16, point: u64) -> Result<()> {
        let Point { mark, faults } = self.gpu(device)?.point(point)?;
        // From here on the thread reports the faults that others find.
        faults.check()?;
        mark.wait()?;
        faults.check_after_wait()
    }

    fn hold(&self, device: u16, stream: u64, point_device: u16, point: u64) -> Result<()> {
        let Point { mark, faults } = self.gpu(point_device)?.point(point)?;
        let queue = self.gpu(device)?.queue(stream)?;
        queue.wait_for(&mark)?;
        queue.faults.follow(&faults, &mark);
        Ok(())
    }

    fn time_between(&self, device: u16, from: u64, to: u64) -> Result<Duration> {
        let gpu = self.gpu(device)?;
        gpu.point(from)?.mark.time_to(&gpu.point(to)?.mark)
    }

    fn forget(&self, device: u16, point: u64) {
        let Ok(gpu) = self.gpu(device) else { return };
        let mut tables = gpu.tables();
        let Some(Point { mark, .. }) = tables.marks.remove(&point) else { return };
        // A thread that still asks about it shares it.
        if tables.spare.len() < MAX_SPARE && Arc::strong_count(&mark) == 1 {
            tables.spare.push(mark);
        } else {
            drop(tables);
            drop(mark);
        }
    }

    fn allocator(&self, device: u16) -> &dyn Allocator {
        &self.pools[usize::from(device)]
    }

    fn upload(&self, device: u16, stream: u64, bytes: &[u8], to: &Block, at: usize) -> Result<()> {
        let gpu = self.gpu(device)?;
        gpu.staging.send(&gpu.context, &*gpu.queue(stream)?, bytes, to, at)
    }

    fn download(&self, device: u16, stream: u64, from: &Block, at: usize, bytes: &mut [u8]) -> Result<()> {
        let gpu = self.gpu(device)?;
        let queue = gpu.queue(stream)?;
        // From here on the thread reports the faults that others find.
        queue.faults.check()?;
        gpu.staging.fetch(&gpu.context, &queue, from, at, bytes)?;
        queue.faults.check_after_wait()
    }
}
