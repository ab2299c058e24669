//! Messages with descriptors between the runtime and its supervisor, and without any between supervisors and
//! the machine's broker: Unix sockets that keep packets whole.

use core::ffi::CStr;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{FileType, lstat, unlink};
use rustix::io::{Errno, IoSlice, IoSliceMut};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType, bind, connect, listen, recvmsg,
    sendmsg, socket_with,
};

/// Most descriptors in one message.
pub const MAX_DESCRIPTORS: usize = 4;

/// Descriptors that came with a message.
pub type Descriptors = [Option<OwnedFd>; MAX_DESCRIPTORS];

/// One end of a connection.
#[derive(Debug)]
pub struct Link {
    socket: OwnedFd,
}

impl From<OwnedFd> for Link {
    fn from(socket: OwnedFd) -> Self {
        Self { socket }
    }
}

impl AsFd for Link {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Opens the end at which a supervisor hears of its processes. `name` needs no file; it is gone with its
/// owner.
///
/// # Errors
/// [`Errno::ADDRINUSE`] when the name is taken.
pub fn listen_at(name: &[u8]) -> Result<OwnedFd, Errno> {
    listen_to(&SocketAddrUnix::new_abstract_name(name)?)
}

/// Opens the end at which the machine's broker hears of spaces. `path` is a file that must not be there yet,
/// and is the caller's to remove.
///
/// # Errors
/// [`Errno::ADDRINUSE`] when there is such a file, whether or not anybody listens; or what the file system
/// says.
pub fn listen_on(path: &CStr) -> Result<OwnedFd, Errno> {
    listen_to(&SocketAddrUnix::new(path)?)
}

fn listen_to(address: &SocketAddrUnix) -> Result<OwnedFd, Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
    bind(&socket, address)?;
    listen(&socket, 1024)?;
    Ok(socket)
}

/// Removes the socket at `path` if the process that made it has ended. Nothing happens when nothing is there.
///
/// # Errors
/// [`Errno::NOTSOCK`] when what is there is no socket, [`Errno::ADDRINUSE`] when somebody listens there, or
/// what the file system says.
pub fn remove_abandoned(path: &CStr) -> Result<(), Errno> {
    match lstat(path) {
        Err(Errno::NOENT) => return Ok(()),
        found if FileType::from_raw_mode(found?.st_mode) == FileType::Socket => {}
        _ => return Err(Errno::NOTSOCK),
    }
    match Link::connect_to(path) {
        Err(Errno::CONNREFUSED) => unlink(path),
        // One whose queue is full, or of another kind, has somebody as well.
        Ok(_) | Err(Errno::AGAIN | Errno::PROTOTYPE) => Err(Errno::ADDRINUSE),
        Err(error) => Err(error),
    }
}

impl Link {
    /// Connects to the broker that listens on that file. Neither sending nor receiving will ever wait:
    /// [`Errno::AGAIN`] instead.
    ///
    /// # Errors
    /// [`Errno::NOENT`] or [`Errno::CONNREFUSED`] when there is none (any more).
    pub fn connect_to(path: &CStr) -> Result<Self, Errno> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        connect(&socket, &SocketAddrUnix::new(path)?)?;
        Ok(Self { socket })
    }

    /// Connects to the supervisor of that name.
    ///
    /// # Errors
    /// [`Errno::CONNREFUSED`] when there is none (any more).
    pub fn connect(name: &[u8]) -> Result<Self, Errno> {
        let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        connect(&socket, &SocketAddrUnix::new_abstract_name(name)?)?;
        Ok(Self { socket })
    }

    /// Connects to the supervisor of that name. Neither this, nor sending, nor receiving will ever wait.
    ///
    /// # Errors
    /// [`Errno::AGAIN`] where others wait already that nobody lets in, [`Errno::CONNREFUSED`] when there is
    /// none (any more).
    pub fn connect_at_once(name: &[u8]) -> Result<Self, Errno> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        connect(&socket, &SocketAddrUnix::new_abstract_name(name)?)?;
        Ok(Self { socket })
    }

    /// The same end under another number, to be asked by another thread whether it is cut.
    ///
    /// # Errors
    /// [`Errno::MFILE`] when there are too many descriptors.
    pub fn duplicate(&self) -> Result<Self, Errno> {
        Ok(Self { socket: rustix::io::fcntl_dupfd_cloexec(&self.socket, 0)? })
    }

    /// Whether the other end has gone.
    pub fn is_cut(&self) -> bool {
        let mut set = [PollFd::new(&self.socket, PollFlags::empty())];
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut set, Some(&at_once)).is_ok_and(|ready| ready > 0)
            && set[0].revents().intersects(PollFlags::HUP | PollFlags::ERR)
    }

    /// Sends one message.
    ///
    /// # Errors
    /// [`Errno::PIPE`] when the other end has gone.
    pub fn send(&self, message: &[u8], descriptors: &[BorrowedFd<'_>]) -> Result<(), Errno> {
        let mut space = [core::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        if !descriptors.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(descriptors)) {
            return Err(Errno::INVAL);
        }
        sendmsg(&self.socket, &[IoSlice::new(message)], &mut ancillary, SendFlags::NOSIGNAL).map(drop)
    }

    /// Waits for a message; its length (0: the other end has gone) and descriptors.
    ///
    /// # Errors
    /// What `recvmsg` returns.
    pub fn receive(&self, message: &mut [u8]) -> Result<(usize, Descriptors), Errno> {
        let mut space = [core::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let received = loop {
            match recvmsg(
                &self.socket,
                &mut [IoSliceMut::new(message)],
                &mut ancillary,
                RecvFlags::CMSG_CLOEXEC,
            ) {
                Err(Errno::INTR) => continue,
                other => break other?,
            }
        };
        let mut descriptors = Descriptors::default();
        let incoming = ancillary.drain().filter_map(|message| match message {
            RecvAncillaryMessage::ScmRights(rights) => Some(rights),
            _ => None,
        });
        for (place, descriptor) in descriptors.iter_mut().zip(incoming.flatten()) {
            *place = Some(descriptor);
        }
        Ok((received.bytes, descriptors))
    }
}
