//! The library, opened once for the process.

use core::ffi::{c_char, c_int, c_void};
use std::sync::OnceLock;

use crate::VerbsError;
use crate::raw::{
    Channel, CompletionQueue, Context, DeviceState, MemoryRegion, Opaque, PortState, ProtectionDomain,
    QueuePair, QueuePairState, QueuePairWish,
};

macro_rules! library {
    ($($name:ident = $symbol:literal: fn($($argument:ty),*) -> $result:ty;)*) => {
        /// Its functions.
        pub(crate) struct Library {
            $(pub(crate) $name: unsafe extern "C" fn($($argument),*) -> $result,)*
            _open: libloading::Library,
        }

        impl Library {
            fn open() -> Result<Self, libloading::Error> {
                // SAFETY: the library is the system's own, and what it does when it is loaded and unloaded
                // concerns nobody else. The types are those of its header. It stays open as long as the
                // pointers: they are in one value.
                unsafe {
                    let open = libloading::Library::new("libibverbs.so.1")?;
                    $(let $name = *open.get::<unsafe extern "C" fn($($argument),*) -> $result>(
                        concat!($symbol, "\0").as_bytes(),
                    )?;)*
                    Ok(Self { $($name,)* _open: open })
                }
            }
        }
    };
}

library! {
    list = "ibv_get_device_list": fn(*mut c_int) -> *mut *mut Opaque;
    free_list = "ibv_free_device_list": fn(*mut *mut Opaque) -> ();
    name = "ibv_get_device_name": fn(*mut Opaque) -> *const c_char;
    open_device = "ibv_open_device": fn(*mut Opaque) -> *mut Context;
    close_device = "ibv_close_device": fn(*mut Context) -> c_int;
    query_device = "ibv_query_device": fn(*mut Context, *mut DeviceState) -> c_int;
    query_port = "ibv_query_port": fn(*mut Context, u8, *mut PortState) -> c_int;
    make_domain = "ibv_alloc_pd": fn(*mut Context) -> *mut ProtectionDomain;
    free_domain = "ibv_dealloc_pd": fn(*mut ProtectionDomain) -> c_int;
    register = "ibv_reg_mr": fn(*mut ProtectionDomain, *mut c_void, usize, c_int) -> *mut MemoryRegion;
    deregister = "ibv_dereg_mr": fn(*mut MemoryRegion) -> c_int;
    make_channel = "ibv_create_comp_channel": fn(*mut Context) -> *mut Channel;
    free_channel = "ibv_destroy_comp_channel": fn(*mut Channel) -> c_int;
    make_completions = "ibv_create_cq": fn(*mut Context, c_int, *mut c_void, *mut Channel, c_int) -> *mut CompletionQueue;
    free_completions = "ibv_destroy_cq": fn(*mut CompletionQueue) -> c_int;
    hear = "ibv_get_cq_event": fn(*mut Channel, *mut *mut CompletionQueue, *mut *mut c_void) -> c_int;
    acknowledge = "ibv_ack_cq_events": fn(*mut CompletionQueue, u32) -> ();
    make_queue = "ibv_create_qp": fn(*mut ProtectionDomain, *mut QueuePairWish) -> *mut QueuePair;
    change_queue = "ibv_modify_qp": fn(*mut QueuePair, *mut QueuePairState, c_int) -> c_int;
    free_queue = "ibv_destroy_qp": fn(*mut QueuePair) -> c_int;
}

/// The library, if this machine has it.
pub(crate) fn library() -> Result<&'static Library, VerbsError> {
    static LIBRARY: OnceLock<Result<Library, String>> = OnceLock::new();
    let opened = LIBRARY.get_or_init(|| Library::open().map_err(|error| error.to_string()));
    opened.as_ref().map_err(|error| VerbsError::Library(error.clone()))
}
