"""What few programs need of autograd: subclasses of the core's classes (`hooks.extends`)."""
