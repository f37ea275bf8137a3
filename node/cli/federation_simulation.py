def federation_simulation() -> None:
    """x"""
    print("fed")
