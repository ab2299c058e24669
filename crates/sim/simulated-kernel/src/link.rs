//! Packets between a pager and its supervisor. The supervisor is a function: it answers where it is asked.

use crate::descriptors::Named;
use crate::{BorrowedFd, Errno, OwnedFd, schedule, world};

/// Most descriptors in one message.
pub const MAX_DESCRIPTORS: usize = 4;
/// Descriptors that came with a message.
pub type Descriptors = [Option<OwnedFd>; MAX_DESCRIPTORS];

/// One end of a connection.
#[derive(Debug)]
pub struct Link(());

/// What a supervisor answers: a packet and what comes with it.
#[derive(Debug, Default)]
pub struct Answer {
    /// The packet.
    pub packet: Vec<u8>,
    /// What comes with it.
    pub named: Vec<Named>,
}

/// Somebody who answers packets.
pub trait Supervisor {
    /// The answer to a packet, if it has one.
    fn answer(&mut self, packet: &[u8], named: &[Named]) -> Option<Answer>;
}

impl Link {
    /// Connects to the supervisor.
    ///
    /// # Errors
    /// None.
    pub fn connect(_name: &[u8]) -> Result<Self, Errno> {
        Ok(Self(()))
    }

    /// The same end.
    ///
    /// # Errors
    /// None.
    pub fn duplicate(&self) -> Result<Self, Errno> {
        Ok(Self(()))
    }

    /// Whether the other end has gone.
    pub fn is_cut(&self) -> bool {
        false
    }

    /// Sends a packet.
    ///
    /// # Errors
    /// [`Errno::PIPE`] without a supervisor.
    pub fn send(&self, message: &[u8], descriptors: &[BorrowedFd<'_>]) -> Result<(), Errno> {
        schedule::point();
        let named: Vec<Named> = descriptors.iter().map(|descriptor| descriptor.0).collect();
        let mut supervisor = world::with(|world| world.supervisor.take()).ok_or(Errno::PIPE)?;
        let answer = supervisor.answer(message, &named);
        world::with(|world| {
            world.supervisor = Some(supervisor);
            world.answers.extend(answer);
        });
        Ok(())
    }

    /// Takes the next answer.
    ///
    /// # Errors
    /// None.
    pub fn receive(&self, message: &mut [u8]) -> Result<(usize, Descriptors), Errno> {
        schedule::point();
        let mut descriptors = Descriptors::default();
        let Some(answer) = world::with(|world| world.answers.pop_front()) else {
            return Ok((0, descriptors));
        };
        let length = answer.packet.len().min(message.len());
        message[..length].copy_from_slice(&answer.packet[..length]);
        for (place, named) in descriptors.iter_mut().zip(answer.named) {
            *place = Some(OwnedFd(named));
        }
        Ok((length, descriptors))
    }
}
