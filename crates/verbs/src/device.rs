//! A device that has been opened, and the place in the network that it has.

use core::ffi::CStr;
use core::ptr::NonNull;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;

use crate::library::{Library, library};
use crate::raw::{ACTIVE, Context, DeviceState, PortState};
use crate::{VerbsError, Wanted};

/// Most reads under way from one queue; more would not make a link faster.
const MOST_READS: u8 = 16;
/// Most ports and addresses that are looked at.
const MOST_PORTS: u8 = 8;
const MOST_GIDS: u8 = 255;

/// Where a port is in the network.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    /// Which of the device's ports.
    pub port: u8,
    /// Which of the port's addresses.
    pub index: u8,
    /// The address.
    pub gid: [u8; 16],
    /// The address within an InfiniBand subnet; 0 on Ethernet.
    pub lid: u16,
    /// What a packet carries at most: 1 is 256 bytes, each step doubles that, up to 5.
    pub mtu: u8,
    /// Reads that the port has under way at most for one queue.
    pub reads: u8,
}

/// A device.
pub struct Device {
    pub(crate) library: &'static Library,
    pub(crate) context: NonNull<Context>,
    place: Place,
}

// SAFETY: the library allows calls with a context from any thread.
unsafe impl Send for Device {}
// SAFETY: as above.
unsafe impl Sync for Device {}

/// What the kernel's files say of one address of one port.
struct Candidate {
    device: String,
    port: u8,
    index: u8,
    gid: [u8; 16],
}

impl Device {
    /// Opens the device that was asked for; without a wish, the one whose port has this address, which is
    /// that of a connection that exists already: what goes by RDMA then takes the same way.
    ///
    /// # Errors
    /// There is none, or it can't be used; the sentence says what to do about it.
    pub fn open(wanted: Option<&Wanted>, local: Option<IpAddr>) -> Result<Arc<Self>, VerbsError> {
        // The kernel tells which devices there are: where there is none, the library is not even looked for.
        let found = match wanted {
            Some(wanted) => asked_for(wanted, local)?,
            None => at_address(local)?,
        };
        let library = library()?;
        let context = open(library, &found.device)?;
        // From here on it is closed when it is not wanted after all.
        let mut device = Self {
            library,
            context,
            place: Place { port: found.port, index: found.index, gid: found.gid, lid: 0, mtu: 1, reads: 1 },
        };
        let mut port = PortState::default();
        // SAFETY: the context is open, and the port's state as large as the library writes it.
        let queried = unsafe { (library.query_port)(context.as_ptr(), found.port, &raw mut port) };
        VerbsError::check("asking for the state of a port", queried)?;
        if port.state != ACTIVE {
            return Err(VerbsError::Port { device: found.device, port: found.port });
        }
        // SAFETY: zeros are a value of this type, which holds numbers only.
        let mut state: DeviceState = unsafe { core::mem::zeroed() };
        // SAFETY: the context is open, and the state larger than what the library writes.
        let queried = unsafe { (library.query_device)(context.as_ptr(), &raw mut state) };
        VerbsError::check("asking for what a device can do", queried)?;
        device.place.lid = port.lid;
        device.place.mtu = port.mtu.clamp(1, 5) as u8;
        device.place.reads = state.most_reads.clamp(1, i32::from(MOST_READS)) as u8;
        Ok(Arc::new(device))
    }

    /// Whether there is any device.
    ///
    /// # Errors
    /// There is none, or no library for it.
    pub fn any() -> Result<(), VerbsError> {
        library()?;
        if devices().is_empty() { Err(VerbsError::Device { of: String::new() }) } else { Ok(()) }
    }

    /// Where it is in the network.
    pub fn place(&self) -> Place {
        self.place
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        // SAFETY: invariant 1 of the crate: all that was made of it has gone, for it holds the device.
        unsafe { (self.library.close_device)(self.context.as_ptr()) };
    }
}

fn open(library: &'static Library, name: &str) -> Result<NonNull<Context>, VerbsError> {
    let none = || VerbsError::Device { of: format!(" of the name {name}") };
    // SAFETY: the list is valid until it is freed, and ends with a null pointer; so are the names of what is
    // in it.
    unsafe {
        let list = (library.list)(core::ptr::null_mut());
        if list.is_null() {
            return Err(none());
        }
        let mut context = Err(none());
        let mut at = list;
        while !(*at).is_null() {
            if CStr::from_ptr((library.name)(*at)).to_bytes() == name.as_bytes() {
                let opened = NonNull::new((library.open_device)(*at));
                context = opened.ok_or_else(|| VerbsError::last("opening an RDMA device"));
                break;
            }
            at = at.add(1);
        }
        (library.free_list)(list);
        context
    }
}

fn folder() -> PathBuf {
    PathBuf::from("/sys/class/infiniband")
}

fn devices() -> Vec<String> {
    let entries = std::fs::read_dir(folder()).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.sort_unstable();
    names
}

/// The addresses of a port, with whether they can be used: of RoCE the second version, which routers know,
/// and all of InfiniBand.
fn gids(device: &str, port: u8) -> Vec<(Candidate, bool)> {
    let port_folder = folder().join(device).join("ports").join(port.to_string());
    let is_ethernet =
        std::fs::read_to_string(port_folder.join("link_layer")).is_ok_and(|layer| layer.trim() == "Ethernet");
    let look = |index: u8| {
        let text = std::fs::read_to_string(port_folder.join(format!("gids/{index}"))).ok()?;
        let gid = parse_gid(text.trim()).filter(|gid| *gid != [0; 16])?;
        let kind = std::fs::read_to_string(port_folder.join(format!("gid_attrs/types/{index}")));
        let is_usable = !is_ethernet || kind.is_ok_and(|kind| kind.trim() == "RoCE v2");
        Some((Candidate { device: device.to_owned(), port, index, gid }, is_usable))
    };
    (0..MOST_GIDS).filter_map(look).collect()
}

fn parse_gid(text: &str) -> Option<[u8; 16]> {
    // Eight groups of four digits: written as an address of IPv6, but never shortened.
    text.parse::<std::net::Ipv6Addr>().ok().map(|address| address.octets())
}

fn gid_of(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
        IpAddr::V6(address) => address.octets(),
    }
}

fn asked_for(wanted: &Wanted, local: Option<IpAddr>) -> Result<Candidate, VerbsError> {
    if !devices().contains(&wanted.device) {
        return Err(VerbsError::Device { of: format!(" of the name {}", wanted.device) });
    }
    let all = gids(&wanted.device, wanted.port);
    let missing = || VerbsError::Gid {
        device: wanted.device.clone(),
        port: wanted.port,
        index: wanted.gid.unwrap_or(0),
    };
    match wanted.gid {
        Some(index) => {
            all.into_iter().map(|(found, _)| found).find(|found| found.index == index).ok_or_else(missing)
        }
        None => {
            let is_local = |found: &Candidate| local.is_some_and(|local| gid_of(local) == found.gid);
            let mut usable: Vec<Candidate> =
                all.into_iter().filter(|(_, is_usable)| *is_usable).map(|(found, _)| found).collect();
            let best = usable.iter().position(is_local).unwrap_or(0);
            if usable.is_empty() { Err(missing()) } else { Ok(usable.swap_remove(best)) }
        }
    }
}

fn at_address(local: Option<IpAddr>) -> Result<Candidate, VerbsError> {
    let none = |of: String| VerbsError::Device { of };
    let local = local.ok_or_else(|| none(" for a connection without an address".to_owned()))?;
    let wanted = gid_of(local);
    let all = devices()
        .into_iter()
        .flat_map(|device| (1..=MOST_PORTS).flat_map(move |port| gids(&device, port)).collect::<Vec<_>>());
    let mut usable = all.filter(|(found, is_usable)| *is_usable && found.gid == wanted);
    usable.next().map(|(found, _)| found).ok_or_else(|| none(format!(" with the address {local}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_of_ipv4_is_found_among_those_of_a_port() {
        let listed = parse_gid("0000:0000:0000:0000:0000:ffff:0a00:0001").unwrap();
        assert_eq!(gid_of("10.0.0.1".parse().unwrap()), listed);
    }

    #[test]
    fn a_device_that_is_not_there_is_refused_by_a_sentence() {
        let wanted = "nothing7:1".parse().unwrap();
        let Err(error) = Device::open(Some(&wanted), None) else { panic!("it cannot be there") };
        let sentence = error.to_string();
        assert!(sentence.contains('`') && !sentence.contains('\n'), "{sentence}");
    }
}
