//! `farmem top`: what runs under Farmem, at a glance.
//!
//! - `screen` is what the screen shows, and what keys do to it;
//! - `draw` puts that into a terminal's cells;
//! - `top` is the loop: look, draw, wait for a key.
//!
//! The first two are functions of their input, so a screen is tested as text.
#![forbid(unsafe_code)]

mod draw;
mod screen;
mod top;

pub use top::{Options, once, top};
